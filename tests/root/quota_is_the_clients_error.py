#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards "a write for which there is no room is the client's error, and loses
# nothing": EDQUOT, ENOSPC and EFBIG of a write arrive as ENOSPC, EIO as EIO;
# nothing acknowledged is lost, so flushes go on to succeed, and so do writes
# once there is room again.

from tinyfuse import *


def test(t):
    for number, name in ((errno.EDQUOT, "ENOSPC"), (errno.ENOSPC, "ENOSPC"),
                         (errno.EFBIG, "ENOSPC"), (errno.EIO, "EIO")):
        host = TinyFuse(t, MiB)
        s = t.server(host.image, *sys.argv[1:])
        h, other = s.connect(), s.connect()
        h.pwrite(pattern(1, 4096), 0)
        h.flush()
        host.fail_writes(number)
        for flags in 0, nbd.CMD_FLAG_FUA, 0:
            e = error_of(h.pwrite, pattern(2, 4096), 8192, flags)
            assert e == name, "a write: %s, not %s" % (e, name)
        assert error_of(other.flush) is None, "nothing was lost"
        host.fail_writes(0)
        for flags in 0, nbd.CMD_FLAG_FUA:
            e = error_of(h.pwrite, pattern(3, 4096), 8192, flags)
            assert e is None, "there is room again: %s" % e
        assert error_of(other.flush) is None
        assert h.pread(4096, 0) == pattern(1, 4096)
        assert h.pread(4096, 8192) == pattern(3, 4096)
        s.stop()
        s.expect_metric("ubd_lost_data", 0)
        s.expect_metric('ubd_request_errors_total{kind="write"}', 3)
        s.expect_metric('ubd_request_errors_total{kind="flush"}', 0)
        s.expect_metric("ubd_syncs_failed_total", 0)


main(test)
