#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards D7 where a request is larger than the dirty-limit: its first part is
# written out, and lost, before its last part is written, which is healthy.
# When the failure is seen nothing of it is acknowledged; then it is.  A FLUSH
# after that never succeeds, nor does any later one; also when others write and
# flush all the time, and take the reports on every open file.

import sys

from roottest import *

ROUNDS = 6


def one_round(t, host, nr_flushers):
    s = t.server(host.image, *sys.argv[2:])
    h = s.connect()
    flushers = [s.connect() for _ in range(nr_flushers)]
    h.flush()
    p = Pump([h, *flushers])
    buf = nbd.Buffer.from_bytearray(bytearray(pattern(2, 14 * MiB)))
    p.issue(h, h.aio_pwrite(buf, 2 * MiB), "lose")
    is_answered = is_lost = False
    late = []  # Answers to flushes issued after the reply to the write.
    left = 20
    small = nbd.Buffer.from_bytearray(bytearray(pattern(1, 4096)))

    def flush(f):
        p.issue(f, f.aio_pwrite(small, 4096), None)  # Else it were clean.
        p.issue(f, f.aio_flush(), (f, is_answered))

    for f in flushers:
        flush(f)
    while p.pending:
        for tag, error in p.reap():
            if tag == "lose":
                is_answered = True
                is_lost = error is None  # Else the writer has been told.
            elif tag:
                f, is_late = tag
                if is_late:
                    late.append(error)
                    left -= 1
                if left > 0:
                    flush(f)
    if is_lost:
        for c in (h, s.connect()):
            late.append(error_of(c.flush))
            late.append(error_of(c.pwrite, bytes(4096), 0, nbd.CMD_FLAG_FUA))
        assert None not in late, "success after a loss: %s" % late
        assert len(set(late)) == 1, "different errors: %s" % late
    s.stop()
    write_back_rest(host.image)
    if is_lost:
        s.expect_metric("ubd_lost_data", 1)
    return is_lost


def test(t):
    host = LossyHost(t, sys.argv[1], 2 * MiB, 4 * MiB)
    nr = sum(one_round(t, host, i % 3 * 2) for i in range(ROUNDS))
    assert nr > 0, "every write failed itself: nothing was tested"


main(test)
