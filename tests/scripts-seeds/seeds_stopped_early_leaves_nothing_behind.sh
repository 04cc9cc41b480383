#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# In the second round, so that the first is in the CSV.

. "$(dirname "$0")/lib.sh"
need nbdkit cc pkg-config pgrep

for number in 1 3; do
    exec {progress}< <(exec "$src/scripts/seeds" "$number" \
        --dir "$image_dir" --plugin "$plugin" --scale 64 --rounds 1000 \
        --rows ours,nbdkit-file --csv csv 2>&1 >out)
    bench_pid=$!
    for _ in 1 2; do
        read -r -u "$progress" line || fail "$number: seeds ended: $line"
        [[ $line == *left ]] || fail "$number: it says '$line'"
    done
    kill -INT "$bench_pid"
    status=0
    wait "$bench_pid" || status=$?
    bench_pid=
    exec {progress}<&-
    [ "$status" -eq 130 ] || fail "$number: exit status $status"
    nothing_is_left
done
grep -q '^raw,bounded,ours,' csv/bounded.csv || fail "the first round is lost"
