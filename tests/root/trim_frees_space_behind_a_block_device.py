#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards zero and trim on a block device: TRIM reaches it as a discard (the
# file behind the loop device shrinks), whatever the alignment; a NO_HOLE zero
# and, with trim=false, any zero leaves the space allocated.

import sys

from hosts import *

UNIT = 4 * MiB


def test(t):
    host = Host(t, sys.argv[1], 8 * UNIT)
    args = sys.argv[2:]
    slack = 256 * KiB
    s = t.server(host.image, *args)
    h = s.connect()
    for i in range(8):
        h.pwrite(pattern(i, UNIT), i * UNIT)
    h.flush()
    full = host.blocks()
    assert full >= 8 * UNIT
    h.trim(2 * UNIT, 0)
    h.flush()
    assert host.blocks() <= full - 2 * UNIT + slack, "TRIM freed nothing"
    h.trim(UNIT, 2 * UNIT + 100)
    h.flush()
    assert host.blocks() <= full - 3 * UNIT + slack, "an odd TRIM"
    assert h.pread(100, 2 * UNIT) == pattern(2, 100)
    assert h.pread(5000, 3 * UNIT + 100) == pattern(3, 5100)[100:]
    before = host.blocks()
    h.zero(UNIT, 4 * UNIT, nbd.CMD_FLAG_NO_HOLE)
    h.flush()
    assert host.blocks() >= before - slack, "NO_HOLE left a hole"
    assert h.pread(UNIT, 4 * UNIT) == bytes(UNIT)
    s.stop()

    s = t.server(host.image, "trim=false", *args)
    h = s.connect()
    assert not h.can_trim()
    h.zero(UNIT, 5 * UNIT)
    h.flush()
    assert host.blocks() >= before - slack, "trim=false, and a zero punched"
    assert h.pread(UNIT, 5 * UNIT) == bytes(UNIT)
    s.stop()


main(test)
