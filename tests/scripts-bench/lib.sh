# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# For the tests of scripts/bench: private folders that hold the image and every
# temporary file, so that what is left in them was left behind.  Sourced.

set -euo pipefail
unset CDPATH

src=${UBD_SRC:-$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)}
dir=$(mktemp -d)
mkdir "$dir/tmp"
# Apart, because a flush can only be counted on a real disk.
image_dir=$(mktemp -d "${UBD_BUILD:-$dir}/bench-test-XXXXXX")
export TMPDIR=$dir/tmp
bench_pid=

# shellcheck disable=SC2317 # It is called by the trap.
leave() {
    local status=$?
    if [ -n "$bench_pid" ]; then
        kill "$bench_pid" 2>/dev/null || true
        wait "$bench_pid" 2>/dev/null || true
    fi
    [ "$status" -eq 0 ] || [ "$status" -eq 77 ] ||
        tail -n 30 "$dir"/{out,err} 2>/dev/null || true
    cd /
    rm -rf "$dir" "$image_dir"
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

# Run scripts/bench; sets $status, and what it says is in out and err.
bench() {
    status=0
    "$src/scripts/bench" "$@" >out 2>err || status=$?
}

# The same with a small image; skips where a tool is missing.
measure() {
    bench --dir "$image_dir" --size 64M "$@"
    ! grep 'skipped: .* not installed' out || exit 77
}

nothing_is_left() {
    local left
    left=$(find "$image_dir" tmp -mindepth 1)
    [ -z "$left" ] || fail "left behind: $left"
    # Every server and client was given a path below the folder.
    left=$(pgrep -af "$dir/tmp" || true)
    [ -z "$left" ] || fail "still running: $left"
}
