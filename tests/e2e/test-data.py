#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Whatever a client does, it reads what it wrote, byte for byte, and so does
# whoever opens the file afterwards.  Random requests of every kind and
# alignment against a copy in memory: every mode, both engines, with and
# without the page cache, sizes that are no multiple of a sector, several
# connections.  Guards the io layer's offsets and lengths, the bounce buffers of
# direct=true and the zero and trim paths.  The seed is printed.

from ubdtest import *

SIZE = 768 * KiB


class Oracle:
    """What the disk must contain."""

    def __init__(self, image):
        self.bytes = bytearray(image)

    def step(self, rng, h, where):
        size = len(self.bytes)
        kind = rng.choice(("read", "read", "write", "write", "write", "zero",
                           "zero", "trim", "cache", "flush", "extents"))
        if kind == "trim" and not h.can_trim():
            kind = "zero"
        offset, count = self.range(rng, size)
        flags = nbd.CMD_FLAG_FUA if rng.random() < 0.15 else 0
        where = f"{where}: {kind} {offset}+{count}"
        if kind == "read":
            same_bytes(h.pread(count, offset),
                       self.bytes[offset:offset + count], where)
        elif kind == "write":
            data = rng.randbytes(count)
            h.pwrite(data, offset, flags)
            self.bytes[offset:offset + count] = data
        elif kind == "zero":
            self.zero(rng, h, count, offset, flags, where)
        elif kind == "trim":
            h.trim(count, offset, flags)
            self.trimmed(h, count, offset, where)
        elif kind == "cache":
            h.cache(count, offset)
        elif kind == "extents":
            self.extents(h, count, offset, where)
        else:
            h.flush()

    @staticmethod
    def range(rng, size):
        """Of every alignment, often at an edge of something."""
        grain = rng.choice((1, 1, 1, 512, 512, 4096, 65536))
        offset = rng.randrange(size) // grain * grain
        limit = rng.choice((16, 700, 5000, 40000, 200000))
        count = max(1, rng.randrange(limit) // grain * grain)
        if rng.random() < 0.1:
            offset = max(0, size - count)
        return offset, min(count, size - offset)

    def zero(self, rng, h, count, offset, flags, where):
        if rng.random() < 0.5:
            flags |= nbd.CMD_FLAG_NO_HOLE
        if rng.random() < 0.3:
            flags |= nbd.CMD_FLAG_FAST_ZERO
            try:
                h.zero(count, offset, flags)
            except nbd.Error as e:
                check(nbd_errno(e) in (errno.ENOTSUP, errno.EOPNOTSUPP),
                      f"{where}: {e}")
                same_bytes(h.pread(count, offset),
                           self.bytes[offset:offset + count],
                           f"{where}: refused, but it changed something")
                return
        else:
            h.zero(count, offset, flags)
        self.bytes[offset:offset + count] = bytes(count)

    def trimmed(self, h, count, offset, where):
        """Each byte of it is as it was or zero; no other has changed."""
        got = h.pread(count, offset)
        old = self.bytes[offset:offset + count]
        wrong = [i for i in range(count) if got[i] not in (0, old[i])]
        check(not wrong, f"{where}: neither old nor zero at {wrong[:3]}")
        self.bytes[offset:offset + count] = got

    def extents(self, h, count, offset, where):
        """What is called a hole or zero reads as zeroes."""
        found = []

        def collect(_context, start, entries, _error):
            at = start
            for length, state in zip(entries[::2], entries[1::2]):
                found.append((at, length, state))
                at += length
            return 0

        h.block_status(count, offset, collect)
        check(found, f"{where}: no extent")
        for at, length, state in found:
            if state & 2:
                equal(self.bytes[at:at + length].count(0),
                      len(self.bytes[at:at + length]),
                      f"{where}: zero bytes of extent {at}+{length}")


def play(t, seed, nr_steps, size, *options):
    what = f"{' '.join(options)} size={size} seed={seed}"
    rng = random.Random(seed)
    img = t.image(data=pattern(size, seed), name="disk.img")
    oracle = Oracle(pattern(size, seed))
    server = t.serve(img, *options)
    handles = [server.connect(extents=True) for _ in range(3)]
    equal(handles[0].get_size(), size, "size")
    for n in range(nr_steps):
        oracle.step(rng, rng.choice(handles), f"{what}: step {n}")
    whole = b"".join(handles[0].pread(min(MiB, size - at), at)
                     for at in range(0, size, MiB))
    same_bytes(whole, oracle.bytes, f"{what}: the whole disk")
    server.stop()
    equal(os.stat(img).st_size, size, f"{what}: length of the file")
    same_bytes(read_file(img), oracle.bytes, f"{what}: the file")


def seed_of_the_day(t):
    seed = int(os.environ.get("UBD_SEED", "0")) or random.randrange(1 << 32)
    print(f"  {t.name}: UBD_SEED={seed}")
    return seed


@test
def a_client_reads_what_it_wrote_in_every_mode(t):
    seed = seed_of_the_day(t)
    for mode in MODES:
        for io in engines():
            play(t, seed, 250, SIZE, "cache=" + mode, "io=" + io)


@test
def a_client_reads_what_it_wrote_around_the_page_cache(t):
    if not takes_direct(t.image()):
        raise Skip("this file system refuses O_DIRECT")
    seed = seed_of_the_day(t)
    for mode in ("barrier", "osync"):
        for io in engines():
            play(t, seed, 200, SIZE, "cache=" + mode, "direct=true",
                 "io=" + io)


@test
def a_size_that_is_no_multiple_of_anything_is_served_to_the_last_byte(t):
    seed = seed_of_the_day(t)
    for size in (1, 511, 513, 4095, 100 * KiB + 321):
        play(t, seed, 120, size, "io=auto")
        if takes_direct(t.image()):
            for io in engines():
                play(t, seed, 120, size, "direct=true", "io=" + io)


@test
def a_client_reads_what_it_wrote_without_trim(t):
    play(t, seed_of_the_day(t), 200, SIZE, "trim=false")


@test
def a_block_device_is_served_like_a_file(t):
    seed = seed_of_the_day(t)
    for sector in ("512", "4096"):
        for options in ((), ("direct=true",), ("io=syscalls",)):
            device = t.loop(t.image(data=pattern(SIZE, seed),
                                    name=t.new_path("backing")),
                            "--sector-size", sector)
            oracle = Oracle(pattern(SIZE, seed))
            rng = random.Random(seed)
            server = t.serve(device.path, *options)
            h = server.connect(extents=True)
            equal(h.get_size(), SIZE, "size")
            for n in range(120):
                oracle.step(rng, h, f"sector {sector} {options} seed={seed}: "
                            f"step {n}")
            server.stop()
            same_bytes(read_file(device.path), oracle.bytes,
                       f"sector {sector} {options}: the device")


@test
def concurrent_clients_do_not_disturb_each_other(t):
    # Eight clients, each in a region whose edges lie inside blocks.
    seed = seed_of_the_day(t)
    nr, span = 8, 30 * KiB + 77
    ways = [("io=" + io,) for io in engines()]
    if takes_direct(t.image()):
        ways += [("direct=true", "io=" + io) for io in engines()]
    for way in ways:
        img = t.image(nr * span, name="disk.img")
        server = t.serve(img, *way)
        final = [None] * nr

        def client(i, h):
            rng = random.Random(seed + i)
            mine = bytearray(span)
            for _ in range(60):
                at = rng.randrange(span)
                count = min(rng.randrange(1, 9000), span - at)
                if rng.random() < 0.2:
                    h.zero(count, i * span + at)
                    mine[at:at + count] = bytes(count)
                else:
                    data = rng.randbytes(count)
                    h.pwrite(data, i * span + at)
                    mine[at:at + count] = data
                at = rng.randrange(span)
                count = min(rng.randrange(1, 9000), span - at)
                same_bytes(h.pread(count, i * span + at), mine[at:at + count],
                           f"{way} seed={seed} client {i}: {at}+{count}")
            final[i] = mine

        in_threads([lambda i=i, h=server.connect(): client(i, h)
                    for i in range(nr)])
        server.stop()
        same_bytes(read_file(img), b"".join(final), f"{way} seed={seed}: file")


main()
