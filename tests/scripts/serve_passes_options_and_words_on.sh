#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need nbdinfo

truncate -s 1M disk.img
start_serve -t 4 disk.img -r --filter=offset offset=4096 || fail "did not start"
[ "$(nbdinfo --size "$(printed uri)")" = 1044480 ] || fail "no filter"
nbdinfo --is read-only "$(printed uri)" || fail "not read-only"
printed qemu | grep -q 'readonly=on' || fail "qemu's line is for writing"
stop_serve

start_serve cache=unsafe disk.img metrics=m.prom || fail "did not start"
status=0
nbdinfo --is read-only "$(printed uri)" || status=$?
[ "$status" -eq 2 ] || fail "read-only, or no answer: status $status" # 2 is no.
stop_serve
grep -q 'mode="unsafe"' m.prom || fail "metrics are not here, or not of unsafe"
