#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the policy table, counted where it matters: flushes that the host's
# disk itself has completed (field 16 of its stat file).
#
#   barrier  a FLUSH is at least one flush of the disk, also the first one with
#            nothing written; a FLUSH with nothing new is none; so is a write;
#            a FUA write, zero or trim is at least one
#   osync    every write, zero and trim is at least one, a FLUSH is none
#   unsafe   nothing is, ever, also when the server ends

import sys

from hosts import *


class Counted:
    def __init__(self, disk):
        self.disk = disk

    def __call__(self, call, *args):
        before = self.disk.flushes()
        call(*args)
        return self.disk.flushes() - before


def barrier(h, flushes):
    fua = nbd.CMD_FLAG_FUA
    # btrfs answers an fdatasync of an unchanged file by itself.
    least = 0 if sys.argv[1].startswith("btrfs") else 1
    assert flushes(h.flush) >= least, "the first FLUSH"
    for i in range(3):
        assert flushes(h.flush) == 0, "a FLUSH with nothing new"
    assert flushes(h.pwrite, pattern(1, 8192), 4096) == 0, "a write"
    assert flushes(h.flush) >= 1, "a FLUSH after a write"
    assert flushes(h.flush) == 0, "a FLUSH with nothing new"
    for i in range(3):
        n = flushes(h.pwrite, pattern(i, 4096), 65536 * i, fua)
        assert n >= 1, "a FUA write"
    assert flushes(h.flush) == 0, "a FLUSH after nothing but FUA writes"
    h.pwrite(pattern(2, 65536), 65536)
    assert flushes(h.zero, 4096, 65536, fua) >= 1, "a FUA zero"
    assert flushes(h.zero, 4096, 73728, fua | nbd.CMD_FLAG_NO_HOLE) >= 1
    assert flushes(h.trim, 8192, 81920, fua) >= 1, "a FUA trim"
    assert flushes(h.zero, 4096, 98304) == 0, "a zero"
    assert flushes(h.flush) >= 1, "a FLUSH after a zero"
    assert flushes(h.trim, 8192, 106496) == 0, "a trim"
    assert flushes(h.flush) >= 1, "a FLUSH after a trim"


def osync(h, flushes):
    for i in range(3):
        n = flushes(h.pwrite, pattern(i, 65536), 65536 * i)
        assert n >= 1, "a write"
        assert flushes(h.flush) == 0, "a FLUSH"
    assert flushes(h.zero, 4096, 65536) >= 1, "a zero"
    assert flushes(h.zero, 4096, 73728, nbd.CMD_FLAG_NO_HOLE) >= 1
    assert flushes(h.zero, 100, 90000) >= 1, "a small zero"
    assert flushes(h.trim, 8192, 98304) >= 1, "a trim"
    assert flushes(h.flush) == 0, "a FLUSH"


def unsafe(h, flushes):
    fua = nbd.CMD_FLAG_FUA
    assert flushes(h.flush) == 0
    for f in 0, fua:
        assert flushes(h.pwrite, pattern(1, 65536), 65536, f) == 0
        assert flushes(h.zero, 4096, 65536, f) == 0
        assert flushes(h.zero, 4096, 73728, f | nbd.CMD_FLAG_NO_HOLE) == 0
        assert flushes(h.trim, 8192, 98304, f) == 0
        assert flushes(h.flush) == 0


def test(t):
    name, mode, args = sys.argv[1], sys.argv[2], sys.argv[3:]
    host = Host(t, name, 4 * MiB)
    # Blocks that exist, and are on the disk: only data changes from here on.
    with open(host.image, "r+b") as f:
        f.write(pattern(9, 4 * MiB))
        f.flush()
        os.fsync(f.fileno())
    sync_filesystem(host.image)
    if name.startswith("btrfs"):  # Its own commits are not ours to count.
        run("mount", "-o", "remount,commit=300", host.where)
    s = t.server(host.image, "cache=" + mode, *args)
    h = s.connect()
    count = Counted(host.disk)
    {"barrier": barrier, "osync": osync, "unsafe": unsafe}[mode](h, count)
    at_exit = count(s.stop)
    if mode == "unsafe":
        assert at_exit == 0, "unsafe, and %d flushes at exit" % at_exit
        s.expect_metric("ubd_syncs_submitted_total", 0)
        s.expect_metric("ubd_fua_total{kind=\"write\"}", 1)
        s.expect_metric("ubd_requests_total{kind=\"flush\"}", 3)


main(test)
