#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards against an answer that the host has not given: while a sync hangs, no
# FLUSH is answered, reads are; a server that is asked to end then waits for the
# host, and exits 0 with everything answered once the host has.

from tinyfuse import *


def test(t):
    host = TinyFuse(t, MiB)
    s = t.server(host.image, *sys.argv[1:])
    # Before anything else is undone, so that the server can be killed.
    t.cleanup.callback(host.release_syncs)
    h, other = s.connect(), s.connect()
    h.flush()
    h.pwrite(pattern(1, 65536), 0)
    other.pread(65536, 0)
    host.hold_syncs()
    p = Pump([h, other])
    p.issue(h, h.aio_flush(), "flush")
    while h.aio_get_direction() & 2:
        h.aio_notify_write()
    host.wait_held()
    for i in range(50):
        assert other.pread(512, i * 512) == \
            pattern(1, 65536)[i * 512:(i + 1) * 512]
    assert not h.aio_command_completed(p.pending[0][1]), \
        "the FLUSH was answered while the sync hangs"

    s.proc.send_signal(signal.SIGTERM)
    # It has heard when it serves nobody any more.
    end = time.monotonic() + 60
    while error_of(other.pread, 512, 0) is None:
        assert time.monotonic() < end, "it still answers requests"
    with contextlib.suppress(nbd.Error):
        other.shutdown()
    assert s.proc.poll() is None, "it has left a sync behind"
    host.release_syncs()
    (_, error), = p.drain()
    # nbdkit may close the connection; it never says what is not so.
    assert error in (None, "ESHUTDOWN", "ENOTCONN"), error
    # A thread of nbdkit may wait for the next request of a client that stays (a
    # race of 1.32, with its file plugin as well); so none stays.
    with contextlib.suppress(nbd.Error):
        h.shutdown()
    assert s.proc.wait(60) == 0, s.messages()
    s.expect_metric("ubd_lost_data", 0)
    s.expect_metric("ubd_syncs_submitted_total", 2)
    s.expect_metric("ubd_syncs_completed_total", 2)
    s.expect_metric("ubd_syncs_failed_total", 0)
    s.expect_metric('ubd_requests_total{kind="flush"}', 2)


main(test)
