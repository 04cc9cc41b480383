#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards what FLUSH and FUA mean, with the host's file system in between: a
# copy of the disk taken right after the reply, as a power cut would leave it
# with its write cache empty, is mounted, and the image in it must have the
# data.  In particular new blocks must be reachable (metadata), and a FUA or
# osync zero and trim must be there, which RWF_DSYNC does not do for them.

import sys

from hosts import *

UNIT = 256 * KiB


class Cut:
    """The disk as it is now, under another name."""

    def __init__(self, t, host):
        self.t, self.host = t, host

    def image(self):
        t, host = self.t, self.host
        # The disk does direct I/O on its file: what it has, the file has.
        if host.is_block:
            with open(host.disk.file, "rb") as f:
                return f.read()
        t.serial += 1
        copy = t.path("cut%d" % t.serial)
        run("cp", "--sparse=always", host.disk.file, copy)
        dev = t.loop(copy)
        where = t.mount(host.kind, dev.dev,
                        "nouuid" if host.kind == "xfs" else "")
        with open(os.path.join(where, "disk.img"), "rb") as f:
            data = f.read()
        run("umount", where)
        os.unlink(copy)
        return data


def test(t):
    name, mode, args = sys.argv[1], sys.argv[2], sys.argv[3:]
    host = Host(t, name, 8 * MiB)
    fd = os.open(host.image, os.O_RDWR)
    os.fsync(fd)
    os.close(fd)
    if not host.is_block:
        run("sync", "-f", host.where)
    s = t.server(host.image, "cache=" + mode, *args)
    h, other = s.connect(), s.connect()
    cut = Cut(t, host)
    want = bytearray(8 * MiB)

    def durable(what):
        got = cut.image()
        assert len(got) == len(want)
        for i in range(0, len(want), UNIT):
            assert got[i:i + UNIT] == want[i:i + UNIT], \
                "%s: unit %d is not on the disk" % (what, i // UNIT)

    def change(kind, unit, flags, start=0, length=UNIT):
        at = unit * UNIT + start
        if kind == "write":
            data = pattern(unit + 77, length)
            h.pwrite(data, at, flags)
        elif kind == "zero":
            data = bytes(length)
            h.zero(length, at, flags)
        else:
            data = bytes(length)
            h.trim(length, at, flags)
            got = h.pread(length, at)
            if got != data:  # May be kept: then it was never changed.
                data = got
        want[at:at + length] = data

    if mode == "barrier":
        for i in 1, 2, 3, 9, 12:
            change("write", i, 0)
        other.flush()  # On another connection.
        durable("FLUSH after writes")
        change("zero", 1, 0)
        change("trim", 2, 0)
        change("zero", 20, nbd.CMD_FLAG_NO_HOLE)
        change("write", 3, 0, 1000, 3000)
        h.flush()
        durable("FLUSH after zero and trim")
        once = nbd.CMD_FLAG_FUA
    else:
        once = 0
    change("write", 5, once)
    durable("durable write into a hole")
    change("write", 5, once, 777, 1234)
    durable("small durable overwrite")
    change("zero", 5, once, 4096, 100000)
    durable("durable zero")
    change("zero", 9, once | nbd.CMD_FLAG_NO_HOLE)
    durable("durable zero, NO_HOLE")
    change("write", 6, once)
    change("trim", 12, once)
    durable("durable trim")
    s.stop()


main(test)
