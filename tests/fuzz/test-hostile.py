#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Clients that vanish, come and go by the thousand, ask for too much, or are
# simply too many: the server lives, leaks nothing, and serves the others.
# Guards that we hold nothing by client.  What nbdkit 1.32 does wrong on its own
# (an assertion when a client dies with replies queued) is told apart.

import os
import resource
import sys

sys.path.insert(0, os.path.join(os.environ["UBD_SRC"], "tests", "e2e"))

from ubdtest import *

READ, WRITE, DISC, FLUSH, TRIM, CACHE, ZERO = 0, 1, 2, 3, 4, 5, 6
FUA = 1


class Raw:
    """A client that speaks NBD by hand, and badly if asked to."""

    def __init__(self, server):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(server.sock)

    def greet(self):
        magic = self.take(18)
        equal(magic[:16], b"NBDMAGICIHAVEOPT", "greeting")
        # Fixed newstyle without zeroes; NBD_OPT_EXPORT_NAME of "".
        self.socket.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))
        self.size, _ = struct.unpack(">QH", self.take(10))
        return self

    def take(self, nr):
        data = b""
        while len(data) < nr:
            more = self.socket.recv(nr - len(data))
            check(more, "the server has hung up")
            data += more
        return data

    @staticmethod
    def header(kind, offset=0, count=0, flags=0, handle=7):
        return struct.pack(">IHHQQI", 0x25609513, flags, kind, handle, offset,
                           count)

    def send(self, *args, data=b"", **kwargs):
        self.socket.sendall(self.header(*args, **kwargs) + data)

    def answer(self):
        """The error of the next simple reply."""
        magic, error, _ = struct.unpack(">IIQ", self.take(16))
        equal(magic, 0x67446698, "magic of a reply")
        return error

    def vanish(self):
        """Without a word; what is unread makes it a reset."""
        self.socket.close()


def rss(server):
    status = read_file(f"/proc/{server.pid}/status").decode()
    return int(re.search(r"VmRSS:\s*(\d+) kB", status)[1]) * KiB


def held(server):
    return (sorted(server.descriptors().values()), server.threads())


def settle(server, before, what):
    """What we hold is again what we held @before."""
    try:
        wait_for(lambda: held(server) == before, "")
    except Failure:
        raise Failure(f"{what}: descriptors and threads {held(server)}, "
                      f"before {before}") from None


def still_serves(h, marker):
    h.pwrite(marker, 0)
    h.flush()
    same_bytes(h.pread(len(marker), 0), marker, "an old connection")


def vanish_in_many_ways(server, nr):
    """Nobody leaves with a reply outstanding: see the next test."""
    block = b"v" * 65536
    for i in range(nr):
        raw = Raw(server)
        if i % 5 != 0:
            raw.greet()
        if i % 5 == 1:
            raw.socket.sendall(Raw.header(WRITE, 0, 4096)[:13])
        elif i % 5 == 2:  # Half of the data, too.
            raw.socket.sendall(Raw.header(WRITE, MiB, 2 * len(block)) + block)
        elif i % 5 == 3:
            raw.socket.sendall(b"\xff" * 28)  # No request at all.
        elif i % 5 == 4:
            raw.send(WRITE, MiB, len(block), data=block, flags=FUA)
            equal(raw.answer(), 0, "a FUA write")
        raw.vanish()


@test
def clients_that_vanish_leave_nothing_behind(t):
    for io in engines():
        server = t.serve(t.image(4 * MiB, name=io), "io=" + io)
        old = server.connect()
        vanish_in_many_ways(server, 10)
        wait_for(lambda: server.threads() >= 17, "nbdkit's threads")
        still_serves(old, b"one" * 1000)
        before = wait_for_quiet(server)
        vanish_in_many_ways(server, 200)
        still_serves(old, b"two" * 1000)
        settle(server, before, f"io={io}, after 200 vanished")
        m = server.stop()
        for kind in ("read", "write", "flush"):
            equal(m("ubd_request_errors_total", kind=kind), 0,
                  f"errors of {kind}")
        equal(m("ubd_lost_data"), 0, "ubd_lost_data")
        # Half a write is no write.
        equal(m("ubd_requests_total", kind="write"), 2 + 2 + 40, "writes")


def wait_for_quiet(server):
    """What it holds once that is the same ten times in a row."""
    state = {"last": None, "same": 0}

    def look():
        now = held(server)
        state["same"] = state["same"] + 1 if now == state["last"] else 0
        state["last"] = now
        return now if state["same"] >= 10 else None
    return wait_for(look, "the server to settle")


def kill_with_replies_queued(t, *args):
    """Returns the server, alive or not."""
    server = t.serve(*args)
    for i in range(40):
        try:
            raw = Raw(server).greet()
            for n in range(16):
                raw.send(READ, 0, MiB, handle=n)
            raw.send(WRITE, 2 * MiB, 5, data=b"acked", flags=FUA)
            raw.vanish()
        except (OSError, Failure):
            break
    return server


@test
def a_client_that_dies_with_replies_queued_costs_no_acknowledged_data(t):
    img = t.image(4 * MiB, data=pattern(2 * MiB))
    server = t.serve(img)
    server.connect().pwrite(b"kept" * 1024, 3 * MiB)
    server.stop()
    server = kill_with_replies_queued(t, img)
    try:
        old = server.connect()
        old.flush()
        same_bytes(old.pread(4096, 3 * MiB), b"kept" * 1024, "served")
        m = server.stop()
        equal(m("ubd_lost_data"), 0, "ubd_lost_data")
    except (nbd.Error, Failure):
        # nbdkit's own assertion; any other death is ours.
        check(not server.alive() or server.wait(), "it lives and fails")
        mentions(server.log(), "raw_send_socket: Assertion `sock >= 0' failed")
        print("  note: nbdkit has aborted by its own assertion")
    same_bytes(read_file(img, 4096, 3 * MiB), b"kept" * 1024, "the image")
    same_bytes(read_file(img, 2 * MiB), pattern(2 * MiB), "the image")


@test
def two_thousand_connections_leave_nothing_behind(t):
    server = t.serve(t.image(4 * MiB))
    old = server.connect()
    still_serves(old, b"zero" * 512)
    memory = []
    before = wait_for_quiet(server)
    for nr in range(2000):
        raw = Raw(server).greet()
        raw.send(READ, 0, 512)
        equal(raw.answer(), 0, "a read")
        raw.take(512)
        if nr % 2:
            raw.send(DISC)
        raw.vanish()
        if nr in (999, 1999):
            settle(server, before, f"after {nr + 1} connections")
            memory.append(rss(server))
    still_serves(old, b"last" * 512)
    check(memory[1] - memory[0] < 8 * MiB,
          f"memory grew from {memory[0]} to {memory[1]} bytes")
    m = server.stop()
    equal(m("ubd_requests_total", kind="read"), 2002, "reads")
    equal(m("ubd_request_errors_total", kind="read"), 0, "errors")


@test
def requests_beyond_every_size_are_refused_and_change_nothing(t):
    data = pattern(2 * MiB)
    img = t.image(data=data)
    server = t.serve(img)
    old = server.connect()
    old.pread(512, 0)
    # FUA where it means nothing is taken or refused, never worse.
    raw = Raw(server).greet()
    raw.send(READ, 0, 512, flags=FUA)
    if raw.answer() == 0:
        same_bytes(raw.take(512), data[:512], "a read with FUA")
    raw.send(FLUSH, flags=FUA)
    check(raw.answer() in (0, 22), "a flush with FUA")
    for kind in (READ, TRIM, CACHE, ZERO):
        for offset, count in ((0, 2 * MiB + 1), (2 * MiB, 1), (2**64 - 1, 2),
                              (0, 2**32 - 1), (0, 0), (2**63, 4096)):
            raw.send(kind, offset, count)
            check(raw.answer() in (12, 22, 28, 75),
                  f"request {kind} of {count} bytes at {offset}")
    raw.send(READ, 0, 512)  # It still knows where a request begins.
    equal(raw.answer(), 0, "a read")
    same_bytes(raw.take(512), data[:512], "a read")
    # A write of 4 GiB is announced: it may hang up or wait for the data.
    for count in (65 * MiB, 2**32 - 1):
        raw = Raw(server).greet()
        raw.send(WRITE, 0, count, data=b"x" * 4096)
        raw.vanish()
    old.flush()
    same_bytes(old.pread(2 * MiB, 0), data, "the disk")
    server.stop()
    same_bytes(read_file(img), data, "the image")


@test
def four_hundred_connections_are_all_served(t):
    nr = 400
    server = t.serve(t.image(nr * 4096))
    clients = [Raw(server).greet() for _ in range(nr)]
    for i, raw in enumerate(clients):
        raw.send(WRITE, i * 4096, 4096, data=struct.pack(">I", i) * 1024)
    for raw in clients:
        equal(raw.answer(), 0, "a write")
        raw.send(FLUSH)
    for raw in clients:
        equal(raw.answer(), 0, "a flush")
    for i, raw in enumerate(clients):
        at = (i + 1) % nr  # What the neighbour wrote.
        raw.send(READ, at * 4096, 4096)
        equal(raw.answer(), 0, "a read")
        same_bytes(raw.take(4096), struct.pack(">I", at) * 1024, "a read")
        raw.send(DISC)
        raw.vanish()
    m = server.stop()
    equal(m("ubd_requests_total", kind="write"), nr, "writes")
    equal(m.flushes, nr, "flushes")
    equal(m.syncs + m.merged + m.clean, nr, "flushes accounted for")


@test
def old_connections_are_served_when_descriptors_run_out(t):
    limit = 120
    server = t.serve(t.image(), preexec_fn=lambda: resource.setrlimit(
        resource.RLIMIT_NOFILE, (limit, limit)))
    old = server.connect()
    old.pread(512, 0)
    before = wait_for_quiet(server)
    # The plugin hears only of those who are greeted, and not all can be.
    crowd = [Raw(server).greet() for _ in range(8)]
    crowd += [Raw(server) for _ in range(limit)]
    wait_for(lambda: len(server.descriptors()) >= limit - 4,
             "the descriptors to run out")
    for i in range(20):
        still_serves(old, bytes([i + 1]) * 4096)
    for raw in crowd:
        raw.vanish()
    # nbdkit 1.32 leaks the socket of a connection for which it has no pipe
    # (with its null plugin, too), so what it holds of those does not count.
    def ours():
        return sorted(d for d in server.descriptors().values()
                      if not d.startswith(("socket:", "pipe:")))
    wait_for(lambda: ours() == [d for d in before[0] if not
                                d.startswith(("socket:", "pipe:"))],
             "the descriptors that are not nbdkit's to be as before")
    still_serves(old, b"old" * 100)
    m = server.stop()
    equal(m("ubd_request_errors_total", kind="write"), 0, "errors")


@test
def too_few_descriptors_are_an_error_at_start(t):
    img = t.image()
    for limit in (12, 20, 30):
        out = t.refuse(img, preexec_fn=lambda n=limit: resource.setrlimit(
            resource.RLIMIT_NOFILE, (n, n)))
        mentions(out, os.strerror(errno.EMFILE), "file=")
        lines = [l for l in out.splitlines() if "error" in l]
        equal(len(lines), 1, f"limit {limit}: lines of {out!r}")


main()
