#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the exception to D3 (D7): what the host could not store was never
# acknowledged.  That is every failure in osync, where nothing acknowledged is
# ever volatile, and a failed O_DIRECT write in any mode.  It is that request's
# own failure; others are not affected, and once there is room again the same
# request works.
#
# Without the exception one full host disables the disk until a restart.

import sys

from roottest import *


def test(t):
    host = LossyHost(t, sys.argv[1])
    s = t.server(host.image, *sys.argv[2:])
    h, other = s.connect(), s.connect()

    h.pwrite(pattern(1, 4096), 0)
    for i in range(3):
        e = error_of(h.pwrite, pattern(2, 65536), 4 * MiB)
        assert e in ("EIO", "ENOSPC"), "a write that cannot be stored: %s" % e
        assert error_of(other.pwrite, pattern(3 + i, 4096), 8192) is None
        assert error_of(other.flush) is None
    if "cache=osync" in sys.argv:
        # Part of a block is zeroed in the page cache: it is the sync of this
        # request that fails.
        for i in range(3):
            e = error_of(h.zero, 1000, 9 * MiB + 100)
            assert e in ("EIO", "ENOSPC"), "a zero without room: %s" % e
            assert error_of(other.zero, 1000, 20000) is None
            assert error_of(other.pwrite, pattern(3 + i, 4096), 8192) is None
            assert error_of(other.flush) is None
    # Whether this zero fails depends on the host; it must stay its own affair.
    error_of(h.zero, 65536, 6 * MiB, nbd.CMD_FLAG_NO_HOLE)
    assert error_of(other.pwrite, pattern(6, 4096), 8192) is None
    assert h.pread(4096, 0) == pattern(1, 4096)

    # Many at a time; afterwards nothing of it is left in any open file.
    handles = [h, other] + [s.connect() for _ in range(2)]
    p = Pump(handles)
    for i in range(60):
        c = handles[i % 4]
        buf = nbd.Buffer.from_bytearray(bytearray(pattern(2, 65536)))
        p.issue(c, c.aio_pwrite(buf, 8 * MiB + i * 65536))
    for _, e in p.drain():
        assert e in ("EIO", "ENOSPC"), "a write that cannot be stored: %s" % e
    for i in range(60):
        c = handles[i % 4]
        e = error_of(c.pwrite, pattern(i, 4096), 4096 * i)
        assert e is None, "write %d to a healthy range: %s" % (i, e)
        e = error_of(c.zero, 4096, 4096 * i)
        assert e is None, "zero %d of a healthy range: %s" % (i, e)
        assert error_of(c.flush) is None

    host.grow()
    for c in (h, other, s.connect()):
        assert error_of(c.pwrite, pattern(7, 65536), 4 * MiB) is None
        assert error_of(c.zero, 65536, 6 * MiB) is None
        assert error_of(c.flush) is None
    assert h.pread(65536, 4 * MiB) == pattern(7, 65536)
    assert h.pread(65536, 6 * MiB) == bytes(65536)
    s.stop()
    s.expect_metric("ubd_lost_data", 0)
    assert not log_lines(s.news(), r"\blost\b"), s.messages()


main(test)
