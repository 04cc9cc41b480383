#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Two disks are two disks, in the order of the command line; a read-only one
# refuses to be written, and its image stays as it is.

from guesttest import *


def test(t):
    kind, attach = sys.argv[1:]
    need_guest(kind, attach)
    images = [t.sparse("disk%d.img" % i, (8 + i) * MiB) for i in range(2)]
    out = guest(t, kind, "--attach", attach, "--disk", images[0], "--disk",
                images[1], run="""
        set -e
        echo first | dd of=$DISK conv=notrunc,fsync 2>/dev/null
        echo second | dd of=$DISK2 conv=notrunc,fsync 2>/dev/null
        blockdev --getsize64 $DISKS""")
    assert out == "%d\n%d\n" % (8 * MiB, 9 * MiB), out
    for image, word in zip(images, (b"first\n", b"second\n")):
        with open(image, "rb") as f:
            assert f.read(16).startswith(word), image
    out = guest(t, kind, "--attach", attach, "--readonly", "--disk",
                images[1], run="""
        head -n 1 $DISK
        blockdev --getro $DISK
        echo third | dd of=$DISK conv=notrunc,fsync 2>/dev/null ||
            echo refused""")
    assert out == "second\n1\nrefused\n", out
    with open(images[1], "rb") as f:
        assert f.read(7) == b"second\n"


main(test)
