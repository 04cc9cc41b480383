#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards D3 where the host is most misleading: its sync fails once and then
# succeeds for ever, with no other sign.  Every later FLUSH and FUA fails.

from tinyfuse import *


def test(t):
    for error, name in (errno.EIO, "EIO"), (errno.ENOSPC, "ENOSPC"):
        host = TinyFuse(t, MiB, sync_errnos=[0, error])
        s = t.server(host.image)
        h, other = s.connect(), s.connect()
        h.flush()  # The first always syncs; this one succeeds.
        h.pwrite(pattern(1, 8192), 0)
        for c in h, other, s.connect(), h:
            e = error_of(c.flush)
            assert e == name, "FLUSH: %s, not %s" % (e, name)
            e = error_of(c.pwrite, pattern(2, 4096), 0, nbd.CMD_FLAG_FUA)
            assert e == name, "FUA write: %s, not %s" % (e, name)
        assert error_of(h.pwrite, pattern(3, 4096), 4096) is None
        assert h.pread(4096, 4096) == pattern(3, 4096)
        s.stop()
        s.expect_metric("ubd_lost_data", 1)
        s.expect_metric("ubd_syncs_failed_total", 1)
        assert len(log_lines(s.news(), r"\blost\b")) == 1, s.messages()


main(test)
