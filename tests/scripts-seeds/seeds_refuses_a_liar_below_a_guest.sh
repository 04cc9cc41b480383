#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need nbdkit cc pgrep linux.uml qemu-storage-daemon mkfs.ext4 losetup
[ "$(id -u)" -eq 0 ] || { echo "needs root"; exit 77; }

plugin=${UBD_BUILD:-$src/build}/tests/scripts-seeds/liar.so
for try in 1 2 3; do # Somebody's `sync` on this host would do its work.
    seeds_quickly 2 --quick --rows uml-barrier,uml-unsafe --csv csv
    ! grep 'skipped: ' out || exit 77
    if [ "$status" -eq 1 ] &&
        grep -q '! uml-barrier: refused: the guest has synced' out; then
        break
    fi
    [ "$try" -lt 3 ] || fail "exit status $status, and it is not refused"
done
grep -q '^  UML over ours, unsafe (unsafe) ' out || fail "who promises nothing"
nothing_is_left
