#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the line that reports a failed durable write through durability.c:
# an RWF_DSYNC write to a healthy range consumes the report of an older loss
# elsewhere.  If it were taken for that write's own failure, the FLUSH that
# covers the lost data would succeed.

import sys

from roottest import *


def test(t):
    host = LossyHost(t, sys.argv[1])

    # The kernel has already failed to write the data back when the FUA comes.
    s = t.server(host.image, "cache=barrier", *sys.argv[2:])
    h, other = s.connect(), s.connect()
    h.pwrite(pattern(1, 4096), 0)
    h.flush()
    h.pwrite(pattern(2, MiB), 4 * MiB)
    fd = os.open(host.image, os.O_RDWR)
    try:
        os.fsync(fd)
        raise AssertionError("this host was expected to lose data")
    except OSError:
        pass
    finally:
        os.close(fd)
    error = error_of(other.pwrite, pattern(3, 4096), 8192, nbd.CMD_FLAG_FUA)
    assert error is not None, "FUA write after a loss elsewhere"
    for c in (h, other, s.connect()):
        # FUA first: no FLUSH has looked yet.
        for _ in range(3):
            e = error_of(c.pwrite, pattern(3, 4096), 8192, nbd.CMD_FLAG_FUA)
            assert e == error, "the loss was swallowed: %s" % e
        e = error_of(c.flush)
        assert e == error, "the loss was swallowed: %s" % e
    s.stop()
    s.expect_metric("ubd_lost_data", 1)

    # Nobody has looked yet when the FUA comes: it may succeed, FLUSH may not.
    s = t.server(host.image, "cache=barrier", *sys.argv[2:])
    h = s.connect()
    h.flush()
    h.pwrite(pattern(4, MiB), 4 * MiB)
    for i in range(8):
        error_of(h.pwrite, pattern(5, 4096), 4096 * i, nbd.CMD_FLAG_FUA)
    assert error_of(h.flush) is not None, "the loss was swallowed"
    assert error_of(h.flush) is not None
    s.stop()


main(test)
