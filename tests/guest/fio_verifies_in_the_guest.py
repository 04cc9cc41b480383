#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# fio in the guest writes at random with flushes in between and reads back what
# it wrote; so does a second guest later, from the image.

from guesttest import *

FIO = ("fio --name=v --filename=$DISK --rw=randwrite --bsrange=4k-64k "
       "--bs_unaligned=0 --size=32M --direct=1 --verify=crc32c "
       "--verify_fatal=1 --randrepeat=1 --fsync=16 --output=/tmp/fio.log ")


def test(t):
    kind = sys.argv[1]
    need_guest(kind)
    need("fio")
    image = t.sparse("disk.img", 32 * MiB)
    show = " || { cat /tmp/fio.log; exit 1; }"
    guest(t, kind, "--disk", image, run=FIO + show)
    guest(t, kind, "--disk", image, run=FIO + "--verify_only=1" + show)


main(test)
