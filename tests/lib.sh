# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# For tests in shell: a private folder, and nothing left behind however the
# test ends.  Sourced; the test is then in $dir.  Redefine before_leaving for
# what must be stopped or removed besides.

set -euo pipefail
unset CDPATH

# shellcheck disable=SC2034 # The test uses it.
src=${UBD_SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)}
dir=$(mktemp -d)

before_leaving() {
    :
}

# shellcheck disable=SC2317 # It is called by the trap.
leave() {
    local status=$?
    before_leaving || true
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ] ||
        tail -n 30 "$dir"/{out,err} 2>/dev/null || true
    cd /
    rm -rf "$dir"
    exit "$status"
}
trap leave EXIT
trap 'exit 143' INT TERM HUP
cd "$dir"

fail() {
    printf 'FAILED: %s\n' "$*"
    exit 1
}

need() {
    local tool
    for tool in "$@"; do
        if ! command -v "$tool" >/dev/null; then
            echo "$tool is not installed"
            exit 77
        fi
    done
}
