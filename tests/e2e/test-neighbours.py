#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# With direct=true a small write reads and rewrites its whole block; two
# neighbours in one block must both survive.  Guards the lock around
# read-modify-write.

from ubdtest import *


def neighbours_survive(t, path, grain, block, direct):
    """All @grain-sized pieces of each block are written at the same time."""
    nr, blocks = block // grain, 32
    for io in engines():
        server = t.serve(path, direct, "io=" + io)
        lines = [Pipeline(server.connect()) for _ in range(nr)]
        for round_nr in range(1, 5):
            for b in range(blocks):
                for i, line in enumerate(lines):
                    value = (i * 31 + b * 7 + round_nr) % 255 + 1
                    line.pwrite((round_nr, b), bytes([value]) * grain,
                                b * block + i * grain)
            for line in lines:
                line.all_succeeded()
            h = lines[0].h
            got = h.pread(blocks * block, 0)
            expected = b"".join(
                bytes([(i * 31 + b * 7 + round_nr) % 255 + 1]) * grain
                for b in range(blocks) for i in range(nr))
            same_bytes(got, expected,
                       f"io={io} grain={grain} block={block} "
                       f"round={round_nr}")
        server.stop()


@test
def both_neighbours_in_a_sector_survive(t):
    img = t.image()
    if not takes_direct(img):
        raise Skip("this file system refuses O_DIRECT")
    neighbours_survive(t, img, 64, 512, "direct=true")


@test
def both_neighbours_in_a_block_of_4096_survive(t):
    device = t.loop(t.image(), "--sector-size", "4096")
    equal(takes_direct(device.path), 4096, "alignment of the loop device")
    neighbours_survive(t, device.path, 512, 4096, "direct=true")


@test
def an_aligned_write_next_to_small_ones_survives(t):
    # The aligned write takes another path and must not slip in between the
    # read and the write of a small one in the same block.
    img = t.image()
    align = takes_direct(img)
    if not align:
        raise Skip("this file system refuses O_DIRECT")
    for io in engines():
        server = t.serve(img, "direct=true", "io=" + io)
        small, large = (Pipeline(server.connect()) for _ in range(2))
        # The small ones touch byte 0 of each block only; the large ones write
        # whole blocks first and then are followed by the small ones' value
        # or not, but every other byte is the large ones'.
        for n in range(200):
            at = n * align
            small.pwrite(n, b"s", at)
            large.pwrite(n, b"L" * align, at)
        small.all_succeeded()
        large.all_succeeded()
        got = small.h.pread(200 * align, 0)
        for n in range(200):
            block = got[n * align:(n + 1) * align]
            check(block[:1] in (b"s", b"L"), f"block {n}: {block[:1]}")
            same_bytes(block[1:], b"L" * (align - 1), f"io={io} block {n}")
        server.stop()


@test
def the_odd_end_and_the_sectors_before_it_survive(t):
    # The end of a size that is no multiple of a sector goes through the page
    # cache, the sectors before it do not; but they share a page with it, and
    # the kernel writes back whole pages.
    img = t.image(8 * 4096 + 7 * 512 + 100)
    if takes_direct(img) != 512:
        raise Skip("needs a file system that takes O_DIRECT in sectors")
    size = os.stat(img).st_size
    page = 8 * 4096
    tail = size - 100
    for io, mode in [(io, m) for io in engines() for m in MODES]:
        server = t.serve(img, "direct=true", "io=" + io, "cache=" + mode)
        sectors = [Pipeline(server.connect()) for _ in range(7)]
        end = Pipeline(server.connect())
        for n in range(1, 120):
            value = bytes([n % 255 + 1])
            end.pwrite(n, value * 100, tail)
            for i, line in enumerate(sectors):
                line.pwrite(n, value * 512, page + i * 512)
            for line in (end, *sectors):
                line.all_succeeded()
                line.buffers.clear()
            if n % 8 == 0:
                end.flush(("flush", n))
                end.all_succeeded()
            got = end.h.pread(size - page, page)
            same_bytes(got, value * (size - page), f"io={io} {mode} round {n}")
        end.h.flush()
        equal(server.stop()("ubd_lost_data"), 0, f"io={io} {mode}: lost data")
        same_bytes(read_file(img, offset=page), value * (size - page),
                   f"io={io} {mode}: the file")
        equal(os.stat(img).st_size, size, "length of the file")


@test
def a_zero_of_a_part_spares_its_neighbour(t):
    img = t.image()
    if not takes_direct(img):
        raise Skip("this file system refuses O_DIRECT")
    # Twice: pieces inside a sector, and sectors inside a page.
    for io in engines():
        for grain, part in ((512, 200), (4096, 512)):
            server = t.serve(img, "direct=true", "io=" + io)
            zeroes, writes = (Pipeline(server.connect()) for _ in range(2))
            for n in range(1, 20):
                writes.h.pwrite(b"o" * 16 * grain, 0)
                value = bytes([n])
                for i in range(16):
                    zeroes.zero((n, i), part, i * grain)
                    writes.pwrite((n, i), value * (grain - part),
                                  i * grain + part)
                writes.flush((n, "flush"))
                zeroes.all_succeeded()
                writes.all_succeeded()
                same_bytes(writes.h.pread(16 * grain, 0),
                           (bytes(part) + value * (grain - part)) * 16,
                           f"io={io} grain={grain} round {n}")
            writes.h.flush()
            equal(server.stop()("ubd_lost_data"), 0, f"io={io}: lost data")


main()
