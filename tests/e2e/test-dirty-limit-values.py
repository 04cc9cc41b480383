#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# What the values of dirty-limit and evict mean: the defaults, 0, the modes and
# options in which nothing stays dirty, and what leaves the page cache.

from pagecache import *


@test
def limit_0_writes_nothing_out(t):
    for options in (("dirty-limit=0",), ("dirty-limit=0", "evict=true"),
                    ("cache=unsafe",), ("cache=osync",),
                    ("cache=osync", "dirty-limit=1M"),
                    ("direct=true", "dirty-limit=1M")):
        img = t.image(8 * MiB)
        if "direct=true" in options and not takes_direct(img):
            continue
        server = t.serve(img, *options)
        h = server.connect()
        for n in range(8):
            h.pwrite(b"n" * MiB, n * MiB)
        m = server.stop()
        for name in ("ubd_dirty_bytes", "ubd_dirty_bytes_peak",
                     "ubd_writeout_bytes_total", "ubd_throttle_seconds_total"):
            equal(m(name), 0, f"{options}: {name}")


@test
def the_default_is_256_MiB(t):
    # Of what is no stream nothing is written out below a quarter of it.
    half = b"h" * (128 * KiB)
    img = t.image(320 * MiB)
    server = t.serve(img)
    cache = PageCache(t, img)
    h = server.connect()
    for n in range(60 * 8):
        h.pwrite(half, n * 256 * KiB)
    m = server.metrics_when(lambda m: m("ubd_dirty_bytes") >= 58 * MiB,
                            "60 MiB dirty")
    equal(m("ubd_writeout_bytes_total"), 0, "bytes written out of 60 MiB")
    for n in range(60 * 8, 80 * 8):
        h.pwrite(half, n * 256 * KiB)
    server.metrics_when(lambda m: m("ubd_writeout_bytes_total") > 0,
                        "write-out of 80 MiB")
    with cache.watched() as watch:
        for n in range(10):
            h.pwrite(b"d" * (32 * MiB), n * 32 * MiB)
    server.stop()
    check(watch.dirty_max <= 257 * MiB, f"{watch.dirty_max} bytes were dirty")


@test
def streams_leave_the_cache_if_asked_and_scattered_writes_never(t):
    size = 64 * MiB
    block = b"e" * MiB
    # With a smaller limit a part may stay: it is written before it is full.
    for limit in (16 * MiB, 64 * MiB):
        for evict in (True, False):
            load = Load(t, size, limit, f"evict={str(evict).lower()}")
            for n in range(64):
                load.write(n * MiB, block)
            if evict:
                # Sooner or later; the last chunks stay until there are more.
                wait_for(lambda: load.cache.cached() <= 24 * MiB,
                         f"{load.what}: the stream leaves the cache")
            else:
                cached = load.cache.cached()
                check(cached >= size - MiB,
                      f"{load.what}: {cached} bytes of {size} are cached")
            load.server.stop()
            os.unlink(load.img)
    rng = random.Random(5)
    load = Load(t, 256 * MiB, 2 * MiB, "evict=true")
    pages = rng.sample(range(65536), 2000)
    for page in pages:
        load.write(page * 4096, block[:4096])
    cached = load.cache.cached()
    check(cached >= len(pages) * 4096, f"scattered: {cached} bytes are cached")
    load.server.stop()


@test
def unsafe_with_a_limit_is_bounded_and_never_syncs(t):
    block = b"u" * MiB
    load = Load(t, 64 * MiB, 16 * MiB, "cache=unsafe")
    with load.cache.watched() as watch:
        for n in range(64):
            load.write(n * MiB, block, flags=nbd.CMD_FLAG_FUA * (n % 2))
            watch.look()
        load.handles[0].flush()
    m = load.end(watch, MiB)
    equal(m.syncs, 0, "syncs")


main()
