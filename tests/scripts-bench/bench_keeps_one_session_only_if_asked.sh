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
    local pid
    exec {progress}< <(exec "$src/scripts/bench" --dir "$image_dir" \
        --size 64M --only fsync1-x1 --servers nbdkit-file,nbdkit-null \
        --paired --rounds 1000 --time 0.2 "$@" 2>&1 >out)
    bench_pid=$!
    read -r -u "$progress" _ || fail "bench ended"
    own=$(session_of "$bench_pid")
    servers=()
    for pid in $(pgrep -P "$bench_pid" -x nbdkit); do
        servers+=("$(session_of "$pid")")
    done
    [ ${#servers[@]} -eq 2 ] || fail "${#servers[@]} servers, expected 2"
    kill -TERM "$bench_pid"
    wait "$bench_pid" || true
    bench_pid=
    exec {progress}<&-
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
