#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards D3 under concurrency.  Of several syncs and durable writes that run
# at the same moment Linux tells only one of the loss; the others return 0.
# None of those may be believed: a FLUSH issued after the lost write was
# acknowledged never succeeds, and once anything failed nothing durable issued
# later succeeds.

import random
import sys

from roottest import *

ROUNDS = 20
DEPTH = 3  # Requests in flight on each of the connections.

# With a dirty-limit, enough to be written out without being asked.
HAS_LIMIT = any(a.startswith("dirty-limit=") for a in sys.argv)
LOSS = 2 * MiB if HAS_LIMIT else 64 * KiB


class Op:
    def __init__(self, kind, handle, issued):
        self.kind, self.handle, self.issued = kind, handle, issued
        self.done = self.error = None


def one_round(t, host, rnd):
    s = t.server(host.image, "cache=barrier", *sys.argv[2:])
    handles = [s.connect() for _ in range(5)]
    handles[0].flush()
    p = Pump(handles)
    ops = []
    lost = None

    def start(h):
        kind = rnd.choice(("flush", "flush", "fua", "plain", "zero"))
        op = Op(kind, h, p.next_event())
        where = rnd.randrange(64) * 4096
        if kind == "flush":
            cookie = h.aio_flush()
        elif kind == "zero":
            # No hole: that would make room on the tmpfs below.
            cookie = h.aio_zero(4096, where, flags=nbd.CMD_FLAG_FUA |
                                nbd.CMD_FLAG_NO_HOLE)
        else:
            buf = nbd.Buffer.from_bytearray(bytearray(pattern(1, 4096)))
            cookie = h.aio_pwrite(buf, where, flags=nbd.CMD_FLAG_FUA
                                  if kind == "fua" else 0)
        ops.append(op)
        p.issue(h, cookie, op)

    for h in handles:
        for _ in range(DEPTH):
            start(h)
    before, after, seen = rnd.randrange(5, 30), 60, 0
    while p.pending:
        for op, error in p.reap():
            op.done, op.error = p.next_event(), error
            seen += 1
            if op.kind == "lose":
                assert error is None
                lost = op
                before = seen
            if lost is None or seen < before + after:
                start(op.handle)
        if seen >= before and lost is None:
            lost = Op("losing", handles[0], p.next_event())
            lost.kind = "lose"
            buf = nbd.Buffer.from_bytearray(bytearray(pattern(2, LOSS)))
            p.issue(handles[0], handles[0].aio_pwrite(buf, 4 * MiB), lost)

    durable = [o for o in ops if o.kind in ("flush", "fua", "zero")]
    failed = [o for o in durable if o.error]
    assert failed, "the loss was never reported"
    first = min(o.done for o in failed)
    for o in durable:
        story = "%s issued %d done %d: %s (lost %d..%d, first failure %d)" % (
            o.kind, o.issued, o.done, o.error, lost.issued, lost.done, first)
        if o.kind in ("flush", "zero") and o.issued > lost.done:
            # (A FUA zero is followed by a sync, which covers all as well.)
            assert o.error, "a sync covers a lost write, and no error: " + \
                story
        if o.issued > first:
            assert o.error, "succeeded after a failure: " + story
    assert len({o.error for o in failed}) == 1, "different errors"
    assert error_of(s.connect().flush) == failed[0].error
    s.stop()
    s.expect_metric("ubd_lost_data", 1)
    write_back_rest(host.image)
    assert len(log_lines(s.news(), r"\blost\b")) == 1, s.messages()


def test(t):
    host = LossyHost(t, sys.argv[1])
    seed = int(os.environ.get("UBD_SEED", random.randrange(1 << 32)))
    for i in range(ROUNDS):
        print("UBD_SEED=%d" % (seed + i), flush=True)
        one_round(t, host, random.Random(seed + i))


main(test)
