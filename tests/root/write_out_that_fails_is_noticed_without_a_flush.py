#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards D3 and D4 for write-out: with a dirty-limit acknowledged data is
# written out in the background, and if the host loses it there, the metric
# says so although nobody flushes; and the next FLUSH and every later FLUSH
# and FUA write, on old and on new connections, fails with the same error.
# The loss is logged once.
#
# The report of the loss goes to the open file of the write-out and, once, to
# every other one; a server that took the first for its own business, or asked
# the others twice, would tell a client "success".

import sys
import time

from roottest import *


def is_lost(s):
    with contextlib.suppress(FileNotFoundError):
        with open(s.metrics_file) as f:
            return "\nubd_lost_data 1\n" in f.read()
    return False


def durable_requests(h):
    block = bytes(4096)
    return [error_of(h.flush),
            error_of(h.pwrite, block, 0, nbd.CMD_FLAG_FUA),
            error_of(h.zero, 4096, 4096, nbd.CMD_FLAG_FUA),
            error_of(h.flush)]


def lose(t, host, length, args):
    """A stream of writes of @length bytes each, over what the host loses."""
    s = t.server(host.image, *args)
    old, h = s.connect(), s.connect()
    h.pwrite(pattern(1, 4096), 16384)
    assert error_of(old.flush) is None, "the host is healthy up to here"
    for at in range(4 * MiB, 12 * MiB, length):
        e = error_of(h.pwrite, pattern(at, length), at)
        assert e is None, "a write: %s" % e
    end = time.monotonic() + 20
    while not is_lost(s):
        assert time.monotonic() < end, "a loss that no metric tells of"
        time.sleep(0.01)

    error = error_of(h.flush)
    assert error in ("EIO", "ENOSPC"), "FLUSH after a loss: %s" % error
    for name, c in (("the same", h), ("an old", old), ("a new", s.connect())):
        got = durable_requests(c)
        assert set(got) == {error}, "%s connection: %s" % (name, got)
    assert h.pread(4096, 16384) == pattern(1, 4096)
    s.stop()
    write_back_rest(host.image)
    lost = log_lines(s.news(), r"\blost\b")
    assert len(lost) == 1, "log lines about the loss:\n" + s.messages()
    s.expect_metric("ubd_lost_data", 1)


def test(t):
    host = LossyHost(t, sys.argv[1])
    for length in 4096, 65536, MiB, 8 * MiB:
        lose(t, host, length, sys.argv[2:])


main(test)
