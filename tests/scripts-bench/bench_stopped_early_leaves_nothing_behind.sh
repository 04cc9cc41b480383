#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need nbdkit qemu-nbd nbd-server fio pgrep

# stop_early SERVER WHAT WORDS...: WHAT is in its lines of progress.
stop_early() {
    local server=$1 what=$2 line status
    shift 2
    exec {progress}< <(exec "$src/scripts/bench" --dir "$image_dir" \
        --size 64M --only fsync1-x1 --servers "$server" --rounds 1000 \
        --time 0.2 "$@" 2>&1 >out)
    bench_pid=$!
    # A line for each round: it is stopped somewhere in the second.
    for _ in 1 2; do
        read -r -u "$progress" line || fail "$server: bench ended"
        [[ $line == *"$what"*left ]] || fail "$server: it says '$line'"
    done
    kill -TERM "$bench_pid"
    status=0
    wait "$bench_pid" || status=$?
    bench_pid=
    exec {progress}<&-
    [ "$status" -eq 143 ] || fail "$server: exit status $status"
    nothing_is_left
}

for server in nbdkit-file qemu-wb nbd-server; do
    stop_early "$server" "$server"
done
stop_early nbdkit-file,nbdkit-null 'all by turns' --paired
