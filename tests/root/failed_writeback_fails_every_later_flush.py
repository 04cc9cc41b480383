#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards D3 (lost data is sticky): in barrier, once the host has failed to
# write acknowledged data back, that FLUSH and every later FLUSH, FUA write,
# FUA zero and FUA trim, on old and on new connections, fails with the same
# error.  Reads go on, the loss is in the metrics and is logged once.  A
# restart ends it.
#
# Without D3 the second FLUSH succeeds: Linux reports a failure once.

import sys

from roottest import *


def durable_requests(h):
    """Every request that promises durability, on a healthy range."""
    block = bytes(4096)
    return {
        "flush": error_of(h.flush),
        "FUA write": error_of(h.pwrite, block, 0, nbd.CMD_FLAG_FUA),
        "FUA zero": error_of(h.zero, 4096, 4096, nbd.CMD_FLAG_FUA),
        "FUA trim": error_of(h.trim, 4096, 8192, nbd.CMD_FLAG_FUA),
        "flush again": error_of(h.flush),
    }


def test(t):
    host = LossyHost(t, sys.argv[1])
    s = t.server(host.image, "cache=barrier", *sys.argv[2:])
    old = s.connect()
    a = s.connect()
    healthy = pattern(1, 4096)

    a.pwrite(healthy, 16384)
    assert error_of(a.flush) is None, "the host is healthy up to here"
    a.pwrite(pattern(2, MiB), 4 * MiB)  # Acknowledged, and lost.

    error = error_of(a.flush)
    assert error in ("EIO", "ENOSPC"), "FLUSH after a loss: %s" % error
    for name, h in (("the same", a), ("an old", old), ("a new", s.connect())):
        for what, e in durable_requests(h).items():
            assert e == error, "%s on %s connection: %s, not %s" % (
                what, name, e, error)

    # A healthy disk again does not bring the lost data back.
    host.grow()
    b = s.connect()
    assert error_of(b.pwrite, pattern(3, 4096), 8 * MiB) is None
    for what, e in durable_requests(b).items():
        assert e == error, "%s after making room: %s" % (what, e)

    assert b.pread(4096, 16384) == healthy
    assert len(old.pread(MiB, 4 * MiB)) == MiB
    s.stop()

    lost = log_lines(s.news(), r"\blost\b")
    assert len(lost) == 1, "log lines about the loss:\n" + s.messages()
    s.expect_metric("ubd_lost_data", 1)
    assert s.metric("ubd_syncs_failed_total") >= 1

    s = t.server(host.image, "cache=barrier", *sys.argv[2:])
    h = s.connect()
    h.pwrite(pattern(4, MiB), 4 * MiB)
    assert error_of(h.flush) is None, "a restart begins afresh"
    assert h.pread(MiB, 4 * MiB) == pattern(4, MiB)
    s.stop()
    s.expect_metric("ubd_lost_data", 0)


main(test)
