#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the border between D3 and D7: FUA writes that fail by themselves, and
# are no loss, run all the time while one acknowledged write is lost.  The
# failures leave the same reports in the same open files; even so every FLUSH
# issued after the lost write was acknowledged fails, for ever.

import random
import sys

from roottest import *

ROUNDS = 20


def hear_old_news(image):
    """A failure that nobody has heard of is told to who opens the file next:
    the server of the next round must not hear of this one's."""
    fd = os.open(image, os.O_RDWR)
    with contextlib.suppress(OSError):
        os.fsync(fd)
    os.close(fd)


def one_round(t, host, rnd):
    hear_old_news(host.image)
    s = t.server(host.image, "cache=barrier", *sys.argv[2:])
    handles = [s.connect() for _ in range(4)]
    handles[0].flush()
    p = Pump(handles)
    lost = None  # The event at which the lost write was acknowledged.

    def start(h):
        kind = rnd.choice(("flush", "fua", "own", "own"))
        if kind == "flush":
            cookie = h.aio_flush()
        else:
            where = 12 * MiB if kind == "own" else 0
            buf = nbd.Buffer.from_bytearray(bytearray(pattern(1, 4096)))
            cookie = h.aio_pwrite(buf, where + rnd.randrange(64) * 4096,
                                  flags=nbd.CMD_FLAG_FUA)
        p.issue(h, cookie, (kind, p.next_event()))

    for h in handles:
        for _ in range(3):
            start(h)
    seen, when, is_losing = 0, rnd.randrange(5, 40), False
    while p.pending:
        for (kind, issued), error in p.reap():
            seen += 1
            now = p.next_event()
            if kind == "lose":
                assert error is None
                lost, when = now, seen
            if kind == "own":
                assert error, "a FUA write without room"
            if kind == "flush" and lost is not None and issued > lost:
                assert error, "FLUSH issued %d, lost at %d" % (issued, lost)
            if lost is None or seen < when + 40:
                start(rnd.choice(handles))
        if seen >= when and not is_losing:
            is_losing = True
            buf = nbd.Buffer.from_bytearray(bytearray(pattern(2, 65536)))
            p.issue(handles[0], handles[0].aio_pwrite(buf, 4 * MiB),
                    ("lose", p.next_event()))
    for h in handles + [s.connect()]:
        assert error_of(h.flush), "FLUSH after a loss"
        assert error_of(h.pwrite, bytes(512), 0, nbd.CMD_FLAG_FUA)
    s.stop()
    s.expect_metric("ubd_lost_data", 1)


def test(t):
    host = LossyHost(t, sys.argv[1])
    seed = int(os.environ.get("UBD_SEED", random.randrange(1 << 32)))
    for i in range(ROUNDS):
        print("UBD_SEED=%d" % (seed + i), flush=True)
        one_round(t, host, random.Random(seed + i))


main(test)
