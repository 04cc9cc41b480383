#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards what zero and trim do to the host's space: TRIM gives blocks back (du
# shows it), a plain zero may do so, NO_HOLE leaves the range allocated, and
# with trim=false nothing is given back.  The extents a client is told agree:
# a hole is a hole, new data that is not yet on the disk is data.

import sys

from hosts import *

UNIT = 4 * MiB


def extents(h, length, offset, flags=0):
    out = []

    def got(_context, at, entries, _err):
        assert at == offset
        out.extend(zip(entries[::2], entries[1::2]))
        return 0

    h.block_status(length, offset, got, flags)
    return out


def is_all(h, length, offset, want):
    """Whether all of the range has this state."""
    at = offset
    while at < offset + length:
        got = extents(h, offset + length - at, at)
        assert got and got[0][0] > 0, "no progress"
        for n, state in got:
            if at < offset + length and state != want:
                return False
            at += n
    return True


def connect(s):
    h = nbd.NBD()
    h.set_strict_mode(0)
    h.add_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    h.connect_unix(s.socket)
    s.handles.append(h)
    assert h.can_meta_context(nbd.CONTEXT_BASE_ALLOCATION)
    return h


def test(t):
    name, args = sys.argv[1], sys.argv[2:]
    hole = nbd.STATE_HOLE | nbd.STATE_ZERO
    host = Host(t, name, 8 * UNIT, disk_size=max(SIZES[name], 128 * MiB))
    slack = 256 * KiB  # For the file system's own maps.

    s = t.server(host.image, *args)
    h = connect(s)
    assert is_all(h, 8 * UNIT, 0, hole), "a sparse image is a hole"
    h.pwrite(pattern(1, UNIT), UNIT)
    assert is_all(h, UNIT, UNIT, 0), "data that is not yet on the disk"
    assert is_all(h, UNIT, 0, hole) and is_all(h, UNIT, 2 * UNIT, hole)
    one = extents(h, 8 * UNIT, 0, nbd.CMD_FLAG_REQ_ONE)
    assert len(one) == 1 and 0 < one[0][0] <= UNIT and one[0][1] == hole
    one = extents(h, 100000, UNIT + 7, nbd.CMD_FLAG_REQ_ONE)
    assert one == [(100000, 0)], "not clamped to the request: %s" % one
    tail = extents(h, 1, 8 * UNIT - 1)
    assert tail == [(1, hole)], tail

    for i in range(4):
        h.pwrite(pattern(i, UNIT), i * UNIT)
    h.flush()
    full = host.blocks()
    assert full >= 4 * UNIT - slack
    h.trim(UNIT, 0)
    h.flush()
    assert host.blocks() <= full - UNIT + slack, "TRIM freed nothing"
    assert is_all(h, UNIT, 0, hole)
    # Inward: the blocks at both ends are shared with data that stays.
    h.trim(UNIT, UNIT + 100)
    assert h.pread(100, UNIT) == pattern(1, 100)
    assert h.pread(4096, 2 * UNIT + 100) == pattern(2, 4196)[100:]

    before = host.blocks()
    h.zero(UNIT, 3 * UNIT, nbd.CMD_FLAG_NO_HOLE)
    h.zero(UNIT, 4 * UNIT, nbd.CMD_FLAG_NO_HOLE)
    h.flush()
    assert host.blocks() >= before + UNIT - slack, "NO_HOLE left a hole"
    assert h.pread(2 * UNIT, 3 * UNIT) == bytes(2 * UNIT)
    s.stop()

    s = t.server(host.image, "trim=false", *args)
    h = connect(s)
    assert not h.can_trim()
    h.pwrite(pattern(5, UNIT), 5 * UNIT)
    h.flush()
    before = host.blocks()
    assert error_of(h.trim, UNIT, 5 * UNIT) is not None
    h.zero(UNIT, 5 * UNIT)
    h.flush()
    assert host.blocks() >= before - slack, "trim=false, and a zero punched"
    assert h.pread(UNIT, 5 * UNIT) == bytes(UNIT)
    s.stop()
    assert os.stat(host.image).st_size == 8 * UNIT


main(test)
