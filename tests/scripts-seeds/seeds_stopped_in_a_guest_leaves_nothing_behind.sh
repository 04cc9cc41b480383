#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# No guest, no mount, no loop device.

. "$(dirname "$0")/lib.sh"
need nbdkit cc pgrep linux.uml qemu-storage-daemon mkfs.ext4 losetup
[ "$(id -u)" -eq 0 ] || { echo "needs root"; exit 77; }

exec {progress}< <(exec "$src/scripts/seeds" 2 --quick --scale 64 \
    --dir "$image_dir" --plugin "$plugin" --rows uml-barrier --rounds 1000 \
    2>&1 >out)
bench_pid=$!
for _ in 1 2; do
    read -r -u "$progress" line || fail "seeds ended: $line"
    [[ $line == *left ]] || fail "it says '$line'"
done
# Not before the guest's own program has started: "share" is its folder.
for _ in $(seq 600); do
    ! compgen -G 'tmp/*/share/guestload' >/dev/null || break
    sleep 0.1
done
kill -INT "$bench_pid"
status=0
wait "$bench_pid" || status=$?
bench_pid=
exec {progress}<&-
! grep 'skipped: ' out || exit 77
[ "$status" -eq 130 ] || fail "exit status $status"
nothing_is_left
left=$(losetup --noheadings --output BACK-FILE | grep -F "$image_dir" || true)
[ -z "$left" ] || fail "still attached: $left"
! grep -F "$dir/tmp" /proc/mounts || fail "still mounted"
