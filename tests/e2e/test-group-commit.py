#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Flushes that wait share a sync, and every flush is accounted for: it led a
# sync, joined one, or had nothing to do.  Guards D1, D2 and the counters.

from ubdtest import *

BLOCK = 4096


def accounted(m, what):
    equal(m.syncs + m.merged + m.clean, m.flushes,
          f"{what}: syncs {m.syncs} + merged {m.merged} + clean {m.clean} "
          "against flushes")
    equal(m("ubd_syncs_completed_total"), m.syncs, f"{what}: completed")
    equal(m("ubd_volatile_bytes"), 0, f"{what}: volatile bytes")


@test
def every_flush_is_accounted_for(t):
    # Each round: a write and a flush on each connection, all at once, so that
    # flushes race with writes and with each other.  Only FLUSH syncs here.
    nr, rounds = 16, 40
    for io in engines():
        img = t.image(nr * MiB, name=io + ".img")
        server = t.serve(img, "io=" + io)

        def client(h, i):
            for n in range(rounds):
                h.pwrite(bytes([n + 1]) * BLOCK, i * MiB + n * BLOCK)
                h.flush()

        in_threads([lambda h=server.connect(), i=i: client(h, i)
                    for i in range(nr)])
        m = server.stop()
        equal(m.flushes, nr * rounds, "flushes counted")
        equal(m("ubd_requests_total", kind="write"), nr * rounds, "writes")
        accounted(m, "io=" + io)
        for i in range(nr):
            expected = b"".join(bytes([n + 1]) * BLOCK for n in range(rounds))
            same_bytes(read_file(img, len(expected), i * MiB), expected,
                       f"connection {i}")


@test
def flushes_in_flight_share_syncs(t):
    # 128 flushes at once behind a lot of dirty data.  A server that syncs for
    # each answers the same, but submits 128.
    nr, each = 8, 16
    for io in engines():
        img = t.image(64 * MiB, name=io + ".img")
        server = t.serve(img, "io=" + io)
        lines = [Pipeline(server.connect()) for _ in range(nr)]
        for i, line in enumerate(lines):
            for n in range(8):
                line.pwrite(f"w{n}", b"d" * MiB, (i * 8 + n) * MiB)
        for line in lines:
            line.all_succeeded()
        for line in lines:
            for n in range(each):
                line.flush(f"f{n}")
        for line in lines:
            line.all_succeeded()
        m = server.stop()
        accounted(m, "io=" + io)
        check(m.syncs <= nr * each // 2,
              f"io={io}: {m.syncs} syncs for {nr * each} flushes in flight")


@test
def a_flush_that_joined_another_covers_its_own_write(t):
    # D2, as far as it shows from outside: when a connection's flush has been
    # answered, nothing of it may still be counted as volatile once all
    # connections have flushed; and the flush that follows is clean.
    server = t.serve(t.image(16 * MiB))
    handles = [server.connect() for _ in range(8)]
    for n in range(10):
        def one(h, i):
            h.pwrite(bytes(BLOCK), i * MiB + n * BLOCK)
            h.flush()
        in_threads([lambda h=h, i=i: one(h, i)
                    for i, h in enumerate(handles)])
        handles[0].flush()  # Nothing is left to do: clean.
    m = server.stop()
    accounted(m, "barrier")
    check(m.clean >= 10, f"{m.clean} clean flushes, at least 10 had nothing")


main()
