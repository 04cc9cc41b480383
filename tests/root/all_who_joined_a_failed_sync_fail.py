#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the answer to followers: a sync hangs in the host, flushes of other
# connections join it, and it fails.  Every one of them fails, with the same
# error, without a sync of its own; so does whatever comes later.

from tinyfuse import *

NR = 6


def test(t):
    for error, name in ((errno.EIO, "EIO"), (errno.ENOSPC, "ENOSPC"),
                        (errno.EDQUOT, "ENOSPC")):
        host = TinyFuse(t, MiB)
        s = t.server(host.image, *sys.argv[1:])
        # Before anything else is undone, so that the server can be killed.
        t.cleanup.callback(host.release_syncs)
        handles = [s.connect() for _ in range(NR)]
        handles[0].flush()
        for i, h in enumerate(handles):
            h.pwrite(pattern(i, 4096), i * 4096)
        host.hold_syncs()
        p = Pump(handles)
        p.issue(handles[0], handles[0].aio_flush(), "leader")
        # The pump must send it before we wait.
        while handles[0].aio_get_direction() & 2:
            handles[0].aio_notify_write()
        host.wait_held()
        for h in handles[1:]:
            p.issue(h, h.aio_flush(), "follower")
        # A reply behind the flush, so that nbdkit has read that.
        for h in handles[1:]:
            into = nbd.Buffer(512)
            p.issue(h, h.aio_pread(into, 0), "read")
        reads = 0
        while reads < NR - 1:
            for tag, e in p.reap():
                assert tag == "read" and e is None, \
                    "%s was answered (%s) while the sync hangs" % (tag, e)
                reads += 1
        host.release_syncs(error)
        answers = p.drain()
        assert answers and {e for _, e in answers} == {name}, answers
        assert len(answers) == NR, answers
        for h in (*handles, s.connect()):
            for call, args in ((h.flush, ()), (h.pwrite, (
                    pattern(1, 512), 0, nbd.CMD_FLAG_FUA))):
                e = error_of(call, *args)
                assert e == name, "later: %s" % e
        s.stop()
        s.expect_metric("ubd_lost_data", 1)
        s.expect_metric("ubd_syncs_submitted_total", 2)
        s.expect_metric("ubd_syncs_failed_total", 1)
        s.expect_metric('ubd_request_errors_total{kind="flush"}',
                        2 * NR + 1)
        assert len(log_lines(s.news(), r"\blost\b")) == 1, s.messages()


main(test)
