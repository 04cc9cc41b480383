#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# dirty-limit: what is acknowledged and not yet on the disk is bounded, counted
# by the kernel (cachestat) and by the metrics, whatever the size and the order
# of the requests; nobody waits for ever; every byte is what was written; and
# writing out is never taken for durability.

from pagecache import *

CHUNK = MiB  # The longest write that the engine makes, evict=true.


@test
def a_stream_of_large_writes_is_bounded(t):
    block = pattern(MiB)
    for options in variants():
        load = Load(t, 32 * MiB, 4 * MiB, *options)
        with load.cache.watched() as watch:
            for n in range(32):
                load.write(n * MiB, block)
                watch.look()
        load.end(watch, MiB)


@test
def a_stream_of_small_writes_is_bounded(t):
    block = pattern(4096)
    for options in variants():
        load = Load(t, 10 * MiB, 2 * MiB, *options)
        with load.cache.watched() as watch:
            for n in range(2560):
                load.write(n * 4096, block)
        load.end(watch, 4096)


@test
def scattered_small_writes_are_bounded(t):
    rng = random.Random(3)
    for options in variants():
        load = Load(t, 64 * MiB, MiB, *options)
        with load.cache.watched() as watch:
            for n in range(700):
                load.write(rng.randrange(16384) * 4096, pattern(4096, n))
        load.end(watch, 4096)


@test
def the_same_pages_written_again_and_again_are_bounded(t):
    # An area a little larger than the limit: written out as late as possible.
    rng = random.Random(4)
    block = pattern(4096)
    for options in variants():
        load = Load(t, 3 * MiB, MiB, *options)
        with load.cache.watched() as watch:
            for _ in range(2000):
                load.write(rng.randrange(3 * MiB // 4096) * 4096, block)
        load.end(watch, 4096)


@test
def a_write_larger_than_the_limit_is_bounded_and_correct(t):
    data = pattern(32 * MiB)
    for options in variants():
        load = Load(t, 32 * MiB, MiB, *options)
        with load.cache.watched() as watch:
            load.write(0, data)
        m = load.end(watch, CHUNK)
        check(m("ubd_throttle_seconds_total") > 0, "nobody waited")


@test
def many_connections_are_bounded_together(t):
    for options in variants():
        nr, size = 8, 3 * MiB
        load = Load(t, nr * size, 2 * MiB, *options, connections=nr)

        def stream(n, length):
            block = pattern(length, n)
            for at in range(0, size, length):
                load.write(n * size + at, block, n)

        with load.cache.watched() as watch:
            in_threads([lambda n=n: stream(n, 4096 << (n % 3 * 3))
                        for n in range(nr)])
        load.end(watch, nr * 256 * KiB)


@test
def requests_of_all_sizes_never_wait_for_ever(t):
    # A few dirty pages, too few to be written out early, and then one write
    # that has no room beside them: it is the writer that must get them out.
    for limit in (MiB, 8 * MiB):
        for evict in ("true", "false"):
            load = Load(t, 2 * limit + 4 * MiB, limit, f"evict={evict}",
                        "cache=barrier")
            rng = random.Random(limit)
            line = Pipeline(load.handles[0])
            size = len(load.content)
            with load.cache.watched() as watch:
                # One after the other: the order of two in flight is open.
                for n in range(100):
                    length = rng.choice((4096, 65536, 65536, MiB, limit))
                    at = rng.randrange((size - length) // 4096 + 1) * 4096
                    data = rng.randbytes(64) * (length // 64)
                    load.content[at:at + length] = data
                    line.pwrite(n, data, at)
                    line.all_succeeded()
                    line.buffers.clear()
                    if rng.random() < 0.02:
                        load.handles[0].flush()
            load.end(watch, CHUNK)


@test
def a_large_write_after_a_few_small_ones_gets_its_room(t):
    for nr in (8, 24, 48, 63):
        for evict in ("true", "false"):
            img = t.image(8 * MiB)
            server = t.serve(img, "dirty-limit=1M", f"evict={evict}")
            line = Pipeline(server.connect())
            for n in range(nr):
                line.pwrite(n, b"s" * 4096, n * 65536)
            line.all_succeeded()
            line.pwrite("large", b"l" * MiB, 4 * MiB)
            line.all_succeeded()
            server.stop()


@test
def zeroes_and_trims_that_change_parts_of_pages_are_bounded(t):
    # The host zeroes the rest of a page in its cache, which makes it dirty.
    for kind in ("zero", "no_hole", "trim"):
        load = Load(t, 12 * MiB, MiB)
        load.write(0, pattern(12 * MiB))
        h = load.handles[0]
        h.flush()
        with load.cache.watched() as watch:
            for n in range(700):
                at = n * 16384 + 100
                if kind == "trim":
                    h.trim(5000, at)
                else:
                    h.zero(5000, at, nbd.CMD_FLAG_NO_HOLE
                           if kind == "no_hole" else 0)
                    load.content[at:at + 5000] = bytes(5000)
        if kind == "trim":
            load.content[:] = h.pread(12 * MiB, 0)
        load.what += " " + kind
        load.end(watch, CHUNK)


main()
