#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need nbdkit qemu-nbd nbd-server fio pgrep

for server in nbdkit-file qemu-wb nbd-server; do
    exec {progress}< <(exec "$src/scripts/bench" --dir "$image_dir" \
        --size 64M --only fsync1-x1 --servers "$server" --rounds 1000 \
        --time 0.2 2>&1 >out)
    bench_pid=$!
    # A line for each round: it is stopped somewhere in the second.
    for _ in 1 2; do
        read -r -u "$progress" line || fail "$server: bench ended"
        [[ $line == *"$server"*left ]] || fail "$server: it says '$line'"
    done
    kill -TERM "$bench_pid"
    status=0
    wait "$bench_pid" || status=$?
    bench_pid=
    exec {progress}<&-
    [ "$status" -eq 143 ] || fail "$server: exit status $status"
    nothing_is_left
done
