#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Writing out because of a dirty-limit: what the metrics say of it, that it is
# never taken for a flush, and that neither SIGKILL nor SIGTERM in the middle
# of it loses anything.

from pagecache import *


@test
def the_metrics_tell_of_write_out_and_are_0_after_a_flush(t):
    img = t.image(32 * MiB)
    server = t.serve(img, "dirty-limit=4M")
    h = server.connect()
    h.pwrite(b"x" * 40960, 12288)
    server.metrics_when(lambda m: m("ubd_dirty_bytes") == 40960,
                        "ubd_dirty_bytes of one write")
    h.pwrite(b"y" * (32 * MiB), 0)
    m = server.metrics_when(lambda m: m("ubd_writeout_bytes_total") > 0,
                            "ubd_writeout_bytes_total")
    check(m("ubd_dirty_bytes") <= 4 * MiB + MiB, "ubd_dirty_bytes")
    h.pwrite(b"z" * 40960, 12288)  # Something is left for the flush.
    h.flush()
    m = server.stop()
    equal(m("ubd_dirty_bytes"), 0, "ubd_dirty_bytes after a flush")
    out = m("ubd_writeout_bytes_total")
    check(24 * MiB <= out <= 33 * MiB, f"ubd_writeout_bytes_total {out}")
    check(m("ubd_throttle_seconds_total") > 0, "ubd_throttle_seconds_total")
    equal(m.syncs, 1, "syncs")


@test
def writing_out_is_no_flush(t):
    for io in engines():
        img = t.image(16 * MiB)
        server = t.serve(img, "dirty-limit=1M", "io=" + io)
        cache = PageCache(t, img)
        h = server.connect()
        h.flush()
        for n in range(16):
            h.pwrite(b"w" * MiB, n * MiB)
        equal(server.metrics_when(
            lambda m: m("ubd_writeout_bytes_total") >= 12 * MiB,
            "most to be written out").syncs, 1, "syncs of write-out")
        cache.write_back()
        equal(cache.dirty(), 0, "bytes dirty")
        h.flush()
        m = server.stop()
        equal(m.syncs, 2, "syncs: everything was written out, nothing durable")
        equal(m.clean, 0, "flushes taken for clean")


@test
def a_server_killed_while_it_writes_out_loses_nothing(t):
    for options in variants():
        nr, size = 48, 256 * KiB
        img = t.image(nr * size)
        server = t.serve(img, "dirty-limit=1M", *options)
        line = Pipeline(server.connect())
        for n in range(nr):
            line.pwrite(n, bytes([n + 1]) * size, n * size)
        line.wait(nr // 2)  # Six times the limit.
        server.kill()
        try:
            line.wait()
        except nbd.Error:
            pass  # The connection is gone; that was the idea.
        content = read_file(img)
        acknowledged = [k for k, v in line.results.items() if v == 0]
        check(len(acknowledged) >= nr // 2, "too few were acknowledged")
        for n in acknowledged:
            same_bytes(content[n * size:(n + 1) * size],
                       bytes([n + 1]) * size, f"{options}: write {n}")


@test
def a_server_that_is_asked_to_end_while_it_writes_out_ends_with_0(t):
    for options in variants():
        for number in (signal.SIGTERM, signal.SIGINT):
            nr, size = 48, 256 * KiB
            img = t.image(nr * size)
            server = t.serve(img, "dirty-limit=1M", *options)
            lines = [Pipeline(server.connect()) for _ in range(3)]
            for n in range(nr):
                lines[n % 3].pwrite(n, bytes([n + 1]) * size, n * size)
            lines[0].wait(3)
            server.process.send_signal(number)
            for line in lines:
                try:
                    line.wait()
                except nbd.Error:
                    pass
            server.disconnect_all()
            equal(server.wait(), 0, f"{options}: status; {server.log()!r}")
            content = read_file(img)
            for line in lines:
                for n, result in line.results.items():
                    if result == 0:
                        same_bytes(content[n * size:(n + 1) * size],
                                   bytes([n + 1]) * size, f"write {n}")


main()
