#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Also for a read-only disk, which qemu-storage-daemon opens only if told so.

. "$(dirname "$0")/lib.sh"
need qemu-storage-daemon

truncate -s 8M "a, b.img"
for options in '' -r; do
    # shellcheck disable=SC2086 # No option is no word.
    start_serve "a, b.img" $options || fail "did not start"
    line=$(printed UML)
    vhost=$(eval "set -- $(sed -nE 's/.*virtio_uml.device=(.*):2 .*/\1/p' out)" &&
        printf %s "$1")
    eval "exec timeout 300 $line" >daemon.log 2>&1 &
    daemon=$!
    while [ ! -S "$vhost" ]; do
        kill -0 "$daemon" 2>/dev/null || fail "$line: $(cat daemon.log)"
        sleep 0.01
    done
    kill "$daemon"
    wait "$daemon" || true
    stop_serve
    rm -f -- "$vhost"
done
