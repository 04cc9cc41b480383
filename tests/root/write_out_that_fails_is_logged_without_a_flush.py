#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the log line about lost data: it comes when write-out meets the loss,
# not when somebody asks for durability the next time, which may be never.

import sys
import time

from roottest import *


def test(t):
    host = LossyHost(t, sys.argv[1])
    s = t.server(host.image, *sys.argv[2:])
    h = s.connect()
    h.pwrite(pattern(1, 8 * MiB), 4 * MiB)
    end = time.monotonic() + 6
    while not log_lines(s.news(), r"\blost\b"):
        assert time.monotonic() < end, "a loss that nobody is told of"
        time.sleep(0.01)
    assert error_of(h.flush) in ("EIO", "ENOSPC")
    s.stop()
    lost = log_lines(s.news(), r"\blost\b")
    assert len(lost) == 1, "log lines about the loss:\n" + s.messages()
    s.expect_metric("ubd_lost_data", 1)


main(test)
