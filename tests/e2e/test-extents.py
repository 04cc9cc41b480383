#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Extents are clamped to the request, REQ_ONE is honoured, and data that was
# written a moment ago is data.  Guards ubd_extents(): an extent longer than the
# request aborts nbdkit (FACTS 3), and SEEK_HOLE over unsynced data must not
# call it a hole.

from ubdtest import *

HOLE, ZERO = 1, 2


def extents(h, count, offset, flags=0):
    """[(offset, length, state)] of one request."""
    found = []

    def collect(context, start, entries, _error):
        equal(context, "base:allocation", "context")
        at = start
        for length, state in zip(entries[::2], entries[1::2]):
            found.append((at, length, state))
            at += length
        return 0

    h.block_status(count, offset, collect, flags)
    check(found, f"no extent for {offset}+{count}")
    equal(found[0][0], offset, "start of the first extent")
    return found


def all_extents(h, count, offset):
    """Ask until the whole range is described; neighbours are merged."""
    result = []
    end = offset + count
    while offset < end:
        for at, length, state in extents(h, end - offset, offset):
            if result and result[-1][2] == state:
                result[-1] = (result[-1][0], result[-1][1] + length, state)
            else:
                result.append((at, length, state))
            offset = at + length
    return result


@test
def data_and_holes_are_told_apart(t):
    img = t.image(4 * MiB)
    with open(img, "r+b") as f:
        f.seek(MiB)
        f.write(b"d" * MiB)
    for io in engines():
        server = t.serve(img, "io=" + io)
        h = server.connect(extents=True)
        equal(all_extents(h, 4 * MiB, 0),
              [(0, MiB, HOLE | ZERO), (MiB, MiB, 0),
               (2 * MiB, 2 * MiB, HOLE | ZERO)], f"io={io}")
        server.stop()


@test
def an_extent_ends_with_the_request(t):
    img = t.image(4 * MiB, data=b"d" * 2 * MiB)
    server = t.serve(img)
    h = server.connect(extents=True)
    for offset, count in ((512 * KiB, 4096), (0, 1), (1, 1), (2 * MiB - 1, 2),
                          (3 * MiB, 4096), (4 * MiB - 1, 1), (0, 4 * MiB)):
        found = extents(h, count, offset)
        total = sum(e[1] for e in found)
        # The last one may run on, says the protocol; ours does not.
        check(total <= count, f"{offset}+{count}: {found}")
    server.stop()


@test
def one_extent_is_one_extent(t):
    img = t.image(4 * MiB)
    with open(img, "r+b") as f:
        for at in range(0, 4 * MiB, MiB):
            f.seek(at)
            f.write(b"d" * 64 * KiB)
    server = t.serve(img)
    h = server.connect(extents=True)
    for offset in (0, 1, 64 * KiB, MiB - 1, 4 * MiB - 4096):
        count = 4 * MiB - offset
        found = extents(h, count, offset, nbd.CMD_FLAG_REQ_ONE)
        equal(len(found), 1, f"extents for {offset}: {found}")
        check(found[0][1] <= count, f"{found} is longer than {count}")
    server.stop()


@test
def data_that_was_just_written_is_data(t):
    for options in [("io=" + io,) for io in engines()] + [("cache=unsafe",)]:
        img = t.image(8 * MiB)
        server = t.serve(img, *options)
        h = server.connect(extents=True)
        for at in (0, MiB, 3 * MiB, 8 * MiB - 64 * KiB):
            h.pwrite(b"d" * 64 * KiB, at)
            for offset, _, state in all_extents(h, 64 * KiB, at):
                equal(state & (HOLE | ZERO), 0,
                      f"{options}: state of {offset}, written and not flushed")
        server.stop()


@test
def a_trimmed_range_is_a_hole(t):
    img = t.image(data=pattern(4 * MiB))
    server = t.serve(img)
    h = server.connect(extents=True)
    h.trim(MiB, MiB)
    found = all_extents(h, 4 * MiB, 0)
    equal(found, [(0, MiB, 0), (MiB, MiB, HOLE | ZERO), (2 * MiB, 2 * MiB, 0)],
          "extents after the trim")
    server.stop()


@test
def the_end_of_an_odd_size_is_described(t):
    size = MiB + 321
    for data in (b"", pattern(size)):
        img = t.image(size, data=data)
        server = t.serve(img)
        h = server.connect(extents=True)
        found = all_extents(h, size, 0)
        equal(sum(e[1] for e in found), size, f"bytes described: {found}")
        server.stop()


@test
def describing_causes_no_sync(t):
    img = t.image(4 * MiB)
    server = t.serve(img)
    h = server.connect(extents=True)
    h.pwrite(b"d" * MiB, MiB)
    for _ in range(5):
        all_extents(h, 4 * MiB, 0)
    m = server.stop()
    equal(m.syncs, 0, "syncs")
    check(m("ubd_requests_total", kind="extents") >= 5, "extents counted")


@test
def a_block_device_is_served_with_or_without_extents(t):
    device = t.loop(t.image(4 * MiB, data=pattern(MiB)))
    server = t.serve(device.path)
    h = server.connect(extents=True)
    if h.can_meta_context("base:allocation"):
        for _, _, state in all_extents(h, MiB, 0):
            equal(state & ZERO, 0, "state of data")
    same_bytes(h.pread(MiB, 0), pattern(MiB), "content")
    server.stop()


main()
