#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards every way to attach a disk: what the guest wrote and synced is in the
# image on the host, at its place, and nothing else is.

from guesttest import *


def test(t):
    kind, attach = sys.argv[1:]
    need_guest(kind, attach)
    image = t.sparse("disk.img", 16 * MiB)
    share = t.path("share")
    os.mkdir(share)
    data = pattern(7, 3 * MiB)
    with open(os.path.join(share, "data"), "wb") as f:
        f.write(data)
    out = guest(t, kind, "--attach", attach, "--disk", image,
                "--share", share, run="""
        set -e
        # The last close of a block device writes it out; this is later.
        sleep 1000 3<>$DISK >/dev/null 2>&1 &
        dd if=/share/data of=$DISK bs=1M seek=5 conv=notrunc 2>/dev/null
        sync $DISK
        blockdev --getsize64 $DISK""")
    assert out == "%d\n" % (16 * MiB), out
    with open(image, "rb") as f:
        got = f.read()
    assert got[5 * MiB:8 * MiB] == data, "the data is not in the image"
    assert got == bytes(5 * MiB) + data + bytes(8 * MiB), "something else is"


main(test)
