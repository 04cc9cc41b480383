#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Linux shares the processors out among sessions, so what bench starts has one
# for each program, or all have bench's.

. "$(dirname "$0")/lib.sh"
need nbdkit pgrep ps

session_of() {
    ps -o sid= -p "$1" | tr -d ' '
}

# sessions WORDS...: sets $own, bench's session, and $servers, those of two
# servers that it has started.
sessions() {
    local pids
    "$src/scripts/bench" --dir "$image_dir" --size 64M --only fsync1-x1 \
        --servers nbdkit-file,nbdkit-null --paired --rounds 1000 --time 1 \
        "$@" >out 2>err &
    bench_pid=$!
    own=$(session_of "$bench_pid")
    while true; do # They are started anew for each round.
        kill -0 "$bench_pid" 2>/dev/null || fail "bench ended"
        mapfile -t pids < <(pgrep -P "$bench_pid" -x nbdkit)
        [ ${#pids[@]} -eq 2 ] || continue
        servers=("$(session_of "${pids[0]}")" "$(session_of "${pids[1]}")")
        [[ -z ${servers[0]} || -z ${servers[1]} ]] || break
    done
    kill -TERM "$bench_pid"
    wait "$bench_pid" || true
    bench_pid=
    nothing_is_left
}

# different N: bench and its servers are in so many sessions.
different() {
    local nr
    nr=$(printf '%s\n' "$own" "${servers[@]}" | sort -u | wc -l)
    [ "$nr" -eq "$1" ] || fail "sessions $own ${servers[*]}, expected $1"
}

sessions
different 3
sessions --one-session
different 1
