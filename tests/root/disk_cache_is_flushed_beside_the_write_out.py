#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the bound on what the disk's own cache holds: a stream makes the host
# flush its disk though no client has flushed, and what is dirty elsewhere in
# the image is not written out by that.

import sys
import time

from hosts import *

STREAM_AT = 16 * MiB
STREAM = 20 * MiB  # More than a share, an eighth of the image.
STRIDE = 64 * KiB  # So that the scattered pages share no folio.


def test(t):
    host = Host(t, sys.argv[1], STREAM_AT + STREAM)
    # Allocated, and then quiet: the file system has no flush of its own to do.
    with open(host.image, "r+b") as f:
        f.write(bytes(host.size))
        os.fsync(f.fileno())
    if host.kind == "ext4":
        run("mount", "-o", "remount,commit=300", host.where)
    s = t.server(host.image, "dirty-limit=64M", *sys.argv[2:])
    h = s.connect()
    scattered = range(0, STREAM_AT, STRIDE)
    for at in scattered:
        h.pwrite(pattern(at, 4096), at)
    fd = os.open(host.image, os.O_RDONLY)
    before = host.disk.flushes()
    for at in range(STREAM_AT, STREAM_AT + STREAM, MiB):
        h.pwrite(pattern(at, MiB), at)
    until = time.monotonic() + 30
    while host.disk.flushes() == before:
        assert time.monotonic() < until, "the disk was never flushed"
        time.sleep(0.01)
    dirty = cachestat(fd, STREAM_AT)[1]
    os.close(fd)
    assert dirty >= len(scattered) * 4096, "only %d bytes are dirty" % dirty
    s.stop()
    assert s.metric("ubd_cache_flushes_total") >= 1
    s.expect_metric("ubd_syncs_submitted_total", 0)


main(test)
