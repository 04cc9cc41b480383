#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# What a guest deletes and trims is given back to the host's file system.

from guesttest import *


def test(t):
    kind = sys.argv[1]
    need_guest(kind)
    image = t.sparse("disk.img", 128 * MiB)
    fill = """
        set -e
        mkfs.ext4 -q $DISK
        mount $DISK /mnt
        dd if=/dev/urandom of=/mnt/large bs=1M count=40 2>/dev/null
        umount /mnt"""
    trim = """
        set -e
        mount $DISK /mnt
        rm /mnt/large
        sync  # Blocks are free once the journal says so.
        fstrim /mnt
        umount /mnt
        e2fsck -fn $DISK >/dev/null 2>&1"""

    def used():
        return os.stat(image).st_blocks * 512

    if used() != 0:
        skip("sparse files use space here")
    guest(t, kind, "--disk", image, run=fill)
    full = used()
    assert full >= 40 * MiB, "%d bytes used" % full
    guest(t, kind, "--disk", image, run=trim)
    assert used() <= full - 36 * MiB, "%d bytes were used, now %d" % (
        full, used())


main(test)
