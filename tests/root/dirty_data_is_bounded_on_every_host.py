#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards dirty-limit where the host is not what the e2e tests run on: other
# file systems and block devices.  The kernel (cachestat, Linux 6.5) is asked
# after every request how much is dirty; and a FLUSH after write-out has taken
# everything along is still a flush of the host's disk.

import sys
import time

from hosts import *

LIMIT = MiB
SIZE = 12 * MiB


def writes(seed):
    """[(offset, length)]: scattered ones, then a stream.

    In this order, since Linux counts a whole folio as dirty if a page of it is,
    and a stream leaves large ones in the cache.
    """
    for i in range(800):
        yield (i * 1597 + seed) % (SIZE // 4096) * 4096, 4096
    for length in 4096, 65536, MiB, 4 * MiB:
        for at in range(0, 4 * MiB, length):
            yield at, length


def test(t):
    host = Host(t, sys.argv[1], SIZE)
    s = t.server(host.image, "dirty-limit=%dM" % (LIMIT // MiB), *sys.argv[2:])
    h = s.connect()
    fd = os.open(host.image, os.O_RDONLY)
    disk = bytearray(SIZE)
    for i, (at, length) in enumerate(writes(1)):
        disk[at:at + length] = pattern(i, length)
        h.pwrite(disk[at:at + length], at)
        dirty = cachestat(fd)[1]
        bound = LIMIT + min(length, MiB) + LIMIT // 4
        assert dirty <= bound, "after %d+%d: %d bytes dirty, limit %d" % (
            at, length, dirty, LIMIT)

    # On btrfs a flush of the disk's cache may take all of the file along, and
    # leave nothing to a FLUSH: one more write when the last of them has ended.
    flushes = None
    while flushes != host.disk.flushes():
        flushes = host.disk.flushes()
        time.sleep(0.3)
    disk[:4096] = pattern(0, 4096)
    h.pwrite(disk[:4096], 0)
    before, write, after = 1, 2, 4
    r = libc.sync_file_range(fd, ctypes.c_long(0), ctypes.c_long(0),
                             before | write | after)
    assert r == 0 and cachestat(fd)[1] == 0
    flushes = host.disk.flushes()
    h.flush()
    assert host.disk.flushes() > flushes, "FLUSH after write-out: no flush"
    os.close(fd)
    s.stop()
    # What the write-out had yet to wait for when it was stopped still counts.
    assert s.metric("ubd_dirty_bytes") <= LIMIT
    s.expect_metric("ubd_syncs_submitted_total", 1)
    peak = s.metric("ubd_dirty_bytes_peak")
    assert LIMIT // 8 < peak <= 2 * LIMIT, "ubd_dirty_bytes_peak %d" % peak
    assert s.metric("ubd_writeout_bytes_total") > 0
    assert host.content() == disk, "the file differs from what was written"


main(test)
