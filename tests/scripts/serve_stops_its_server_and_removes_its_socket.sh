#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"

child_of() {
    local child
    read -r child _ <"/proc/$1/task/$1/children"
    echo "$child"
}

truncate -s 1M disk.img
for signal in INT TERM HUP; do
    start_serve disk.img --socket "my socket" || fail "did not start"
    [ -S "my socket" ] || fail "no socket where it was asked for"
    server=$(child_of "$serve_pid")
    signal_serve "$signal"
    [ "$serve_status" -eq 0 ] || fail "SIG$signal: status $serve_status"
    if kill -0 "$server" 2>/dev/null; then
        fail "SIG$signal: the server still runs"
    fi
    is_gone "my socket"
    [ -f disk.img ] || fail "SIG$signal: the image is gone"
done

# The status of a server that dies is passed on, and its socket goes too.
start_serve disk.img || fail "did not start"
server=$(child_of "$serve_pid")
kill -KILL "$server"
wait_serve
[ "$serve_status" -eq 137 ] || fail "status $serve_status, expected 137"
is_gone disk.img.sock

# Killed itself, serve leaves a stale socket, but no server.
start_serve disk.img || fail "did not start"
server=$(child_of "$serve_pid")
signal_serve KILL
tail --pid="$server" -f /dev/null
start_serve disk.img || fail "did not start after a kill"
stop_serve
