#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# 200 connections with 32 requests each work, and what we use does not grow with
# them: no ring, thread or descriptor per connection beyond nbdkit's own, which
# is measured with its null plugin.  Guards "one disk, shared by all".

import collections

from ubdtest import *

NR = 200
DEPTH = 32
BLOCK = 4096


def kinds(server):
    """How many descriptors of each kind; sockets and pipes are nbdkit's."""
    found = collections.Counter()
    for target in server.descriptors().values():
        found[re.sub(r":\[\d+\]$", "", target)] += 1
    return found


# nbdkit 1.32 gives a connection a thread that reads its handshake and 16 that
# work; it starts them without waiting for them.
THREADS = 17

# And before that: nbdkit's main thread, the metrics', and the two of the engine
# (write-out, flushes of the disk's cache), which the first client starts.
FIRST = 4


def first_client(server):
    """Everything has been started when it returns, its own threads too."""
    server.connect().pread(512, 0)
    wait_for(lambda: server.threads() == FIRST + THREADS,
             f"{FIRST} threads and the {THREADS} of a connection")


def growth_of(server, nr=10):
    """Threads and descriptors of @nr connections that have done something."""
    threads, fds = server.threads(), kinds(server)
    handles = [server.connect() for _ in range(nr)]
    for h in handles:
        h.pread(512, 0)
    wait_for(lambda: server.threads() - threads >= nr * THREADS,
             "nbdkit to start its threads")
    more = kinds(server)
    more.subtract(fds)
    return (server.threads() - threads, {k: n for k, n in more.items() if n})


@test
def a_connection_costs_no_more_than_nbdkit_itself(t):
    null = t.serve("1M", so="null", metrics=False)
    growth_of(null, nr=1)
    expected = growth_of(null)
    equal(expected[0], 10 * THREADS, "threads that nbdkit starts")
    null.stop()
    for io in engines():
        server = t.serve(t.image(), "io=" + io)
        first_client(server)
        equal(growth_of(server), expected,
              f"io={io}: threads and descriptors of 10 connections")
        server.stop()


def under_load(t, io):
    img = t.image(NR * DEPTH * BLOCK, name="disk.img")
    server = t.serve(img, "io=" + io)

    # What we hold after a first client has kept all its threads busy.
    first = Pipeline(server.connect())
    for n in range(DEPTH):
        first.pwrite(n, b"1" * BLOCK, n * BLOCK)
    first.all_succeeded()
    before = kinds(server)

    lines = [first] + [Pipeline(server.connect()) for _ in range(NR - 1)]
    for i, line in enumerate(lines):
        for n in range(DEPTH):
            at = (i * DEPTH + n) * BLOCK
            line.pwrite((i, n), bytes([(i + n) % 255 + 1]) * BLOCK, at)
        line.flush((i, "flush"))
    during = kinds(server)
    for line in lines:
        line.all_succeeded()
    for counted, when in ((during, "during the load"),
                          (kinds(server), "after the load")):
        for kind in set(before) | set(counted):
            if kind in ("socket", "pipe"):
                continue
            if "io_uring" in kind:  # As many as requests, up to a bound.
                check(counted[kind] <= 32, f"{counted[kind]} rings {when}")
                continue
            equal(counted[kind], before[kind], f"io={io}: {kind} {when}")
    for line in lines[1:]:
        server.disconnect(line.h)
    m = server.stop()
    equal(m("ubd_requests_total", kind="write"), NR * DEPTH + DEPTH, "writes")
    equal(m.flushes, NR, "flushes")
    equal(m.syncs + m.merged + m.clean, NR, "flushes accounted for")
    content = read_file(img)
    for i in range(NR):
        for n in range(DEPTH):
            at = (i * DEPTH + n) * BLOCK
            check(content.count(bytes([(i + n) % 255 + 1]), at, at + BLOCK)
                  == BLOCK, f"io={io}: block {n} of connection {i}")


@test
def two_hundred_connections_share_rings_and_descriptors(t):
    for io in engines():
        under_load(t, io)


@test
def connections_come_and_go_without_leaving_anything(t):
    server = t.serve(t.image())
    first_client(server)
    before, threads = kinds(server), server.threads()
    for _ in range(50):
        other = server.connect()
        other.pread(512, 0)
        server.disconnect(other)
    wait_for(lambda: kinds(server) == before and server.threads() == threads,
             "descriptors and threads of 50 connections to go")
    server.stop()


main()
