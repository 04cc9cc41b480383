#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Asked to end with requests in flight, the server finishes what it has begun,
# drains the ring and exits with 0.  Guards .unload / ubd_close(): nothing may
# be running when the ring goes, and nothing may wait for ever.

from ubdtest import *

NR = 256
BLOCK = 16 * KiB


def ended_under_load(t, number, *options):
    img = t.image(NR * BLOCK, name="disk.img")
    server = t.serve(img, *options)
    lines = [Pipeline(server.connect()) for _ in range(4)]
    for n in range(NR):
        line = lines[n % 4]
        line.pwrite(n, bytes([n % 255 + 1]) * BLOCK, n * BLOCK)
        if n % 16 == 15:
            line.flush(("flush", n))
    lines[0].wait(5)
    server.process.send_signal(number)
    for line in lines:
        try:
            line.wait()
        except nbd.Error:
            pass  # nbdkit closes connections; requests that it had not
            #       read yet stay unanswered.
    # One of its threads may still wait for the next request of a client that
    # stays (a race of nbdkit 1.32, also with its file plugin); so none stays.
    server.disconnect_all()
    equal(server.wait(), 0, f"{options}: exit status; it said {server.log()!r}")
    content = read_file(img)
    nr_acknowledged = 0
    for line in lines:
        for key, result in line.results.items():
            if isinstance(key, int) and result == 0:
                nr_acknowledged += 1
                same_bytes(content[key * BLOCK:(key + 1) * BLOCK],
                           bytes([key % 255 + 1]) * BLOCK,
                           f"{options}: acknowledged {key}")
            else:
                check(result in (0, errno.ESHUTDOWN, errno.ENOTCONN),
                      f"{options}: {key} was answered with {result}")
    m = server.metrics()
    check(m("ubd_requests_total", kind="write") >= nr_acknowledged,
          "the last metrics miss requests that were answered")
    equal(m("ubd_syncs_completed_total"), m.syncs, "syncs completed at exit")


@test
def ends_with_0_with_requests_in_flight(t):
    for io in engines():
        for number in (signal.SIGTERM, signal.SIGINT):
            for mode in MODES:
                ended_under_load(t, number, "io=" + io, "cache=" + mode)
    if takes_direct(t.image(name="probe.img")):
        ended_under_load(t, signal.SIGTERM, "direct=true")


@test
def a_client_that_vanishes_does_not_disturb_the_others(t):
    # The client is closed with a request on its way and replies unread (few,
    # so that nbdkit does not write into a closed socket: FACTS 3).
    server = t.serve(t.image(16 * MiB))
    survivor = server.connect()
    for _ in range(20):
        h = nbd.NBD()
        h.connect_unix(server.sock)
        h.pread(512, 0)
        del h  # Closes without a disconnect.
    survivor.pwrite(b"s" * 4096, 0)
    survivor.flush()
    same_bytes(survivor.pread(4096, 0), b"s" * 4096, "content")
    server.stop()


@test
def a_client_that_asks_to_end_gets_its_answers_first(t):
    # NBD_CMD_DISC behind 64 requests: all are answered.
    for io in engines():
        img = t.image(64 * BLOCK)
        server = t.serve(img, "io=" + io)
        h = server.connect()
        line = Pipeline(h)
        for n in range(64):
            line.pwrite(n, bytes([n + 1]) * BLOCK, n * BLOCK)
        line.wait()
        server.disconnect(h)
        line.all_succeeded()
        server.stop()
        same_bytes(read_file(img),
                   b"".join(bytes([n + 1]) * BLOCK for n in range(64)),
                   f"io={io}: the file")


main()
