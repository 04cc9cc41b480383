# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Exhausts the model with spin.  Sourced by the tests of this folder.

set -euo pipefail
export LC_ALL=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
model=$here/durability.pml

for tool in spin gcc; do
    if ! command -v "$tool" >/dev/null; then
        echo "SKIP: $tool is not installed"
        exit 77
    fi
done
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

# run_spin FLAG...: the report of a whole search with these definitions.
run_spin() (
    cd "$folder"
    # spin keeps going after a syntax error, but says so.
    spin "$@" -a "$model" >said 2>&1 || { cat said && return 1; }
    if [ -s said ]; then
        cat said
        return 1
    fi
    gcc -O1 -w -DSAFETY -DNOFAIR -o pan pan.c
    ./pan -m10000
)
