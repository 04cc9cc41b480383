# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# For the tests of scripts/bench: private folders that hold the image and every
# temporary file, so that what is left in them was left behind.  Sourced.

# shellcheck source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

image_dir=
bench_pid=

# shellcheck disable=SC2317 # It is called by the trap.
before_leaving() {
    if [ -n "$bench_pid" ]; then
        kill "$bench_pid" 2>/dev/null || true
        wait "$bench_pid" 2>/dev/null || true
    fi
    rm -rf "$image_dir"
}

mkdir tmp
export TMPDIR=$dir/tmp
# Apart, because a flush can only be counted on a real disk.
image_dir=$(mktemp -d "${UBD_BUILD:-$dir}/bench-test-XXXXXX")

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
