#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the exception to D3 (D7) in barrier: when everything acknowledged is
# durable, a FUA write that fails has lost nothing.  Only that write fails, also
# if many do at the same time: each has left its report in every open file.

import sys

from roottest import *


def test(t):
    host = LossyHost(t, sys.argv[1])
    s = t.server(host.image, "cache=barrier", *sys.argv[2:])
    h = s.connect()

    h.pwrite(pattern(1, 4096), 0)
    h.flush()  # From here on nothing is volatile.
    for i in range(3):
        e = error_of(h.pwrite, pattern(2, 65536), 4 * MiB, nbd.CMD_FLAG_FUA)
        assert e in ("EIO", "ENOSPC"), "a FUA write without room: %s" % e
        assert error_of(h.flush) is None, "FLUSH after round %d" % i
        assert error_of(h.pwrite, pattern(3, 4096), 4096,
                        nbd.CMD_FLAG_FUA) is None

    # With no FLUSH in between, and many at a time.
    for i in range(8):
        e = error_of(h.pwrite, pattern(2, 65536), 4 * MiB, nbd.CMD_FLAG_FUA)
        assert e in ("EIO", "ENOSPC"), "a FUA write without room: %s" % e
    handles = [h] + [s.connect() for _ in range(3)]
    p = Pump(handles)
    for i in range(60):
        c = handles[i % 4]
        buf = nbd.Buffer.from_bytearray(bytearray(pattern(2, 65536)))
        p.issue(c, c.aio_pwrite(buf, 8 * MiB + i * 65536,
                                flags=nbd.CMD_FLAG_FUA))
    for _, e in p.drain():
        assert e in ("EIO", "ENOSPC"), "a FUA write without room: %s" % e
    for i in range(60):
        c = handles[i % 4]
        e = error_of(c.pwrite, pattern(i, 4096), 4096 * i, nbd.CMD_FLAG_FUA)
        assert e is None, "FUA write %d, nothing was lost: %s" % (i, e)
        assert error_of(c.pwrite, pattern(i, 4096), 512 * KiB) is None
        e = error_of(c.flush)
        assert e is None, "FLUSH %d, nothing was lost: %s" % (i, e)

    host.grow()
    assert error_of(h.pwrite, pattern(4, 65536), 4 * MiB,
                    nbd.CMD_FLAG_FUA) is None
    assert error_of(h.pwrite, pattern(5, 4096), 8192) is None
    assert error_of(h.flush) is None
    assert h.pread(65536, 4 * MiB) == pattern(4, 65536)
    s.stop()
    s.expect_metric("ubd_lost_data", 0)


main(test)
