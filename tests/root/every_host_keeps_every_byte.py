#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the exactness of write, zero and trim on every kind of host, to the
# byte, whatever the host supports (punch, zero-range, BLKZEROOUT, or only
# written zeroes) and whatever alignment O_DIRECT needs: random requests
# against a copy of the disk in memory.  A trimmed byte may be what it was or
# zero.  The length of the image never changes.

import random
import sys

from hosts import *

ROUNDS = 400


def test(t):
    name, args = sys.argv[1], sys.argv[2:]
    is_block = name.startswith("block")
    # An odd length, where the host has such.
    size = 6 * MiB + (0 if is_block else 777)
    host = Host(t, name, size)
    seed = int(os.environ.get("UBD_SEED", random.randrange(1 << 32)))
    print("UBD_SEED=%d" % seed, flush=True)
    rnd = random.Random(seed)
    disk = bytearray(size)
    s = t.server(host.image, *args)
    handles = [s.connect() for _ in range(2)]
    assert handles[0].get_size() == size
    kinds = {"write": 40, "zero": 25, "trim": 12, "read": 18, "flush": 5}
    if not handles[0].can_trim():
        del kinds["trim"]
    zero_flags = [0, nbd.CMD_FLAG_NO_HOLE]
    if handles[0].can_fast_zero():
        zero_flags.append(nbd.CMD_FLAG_FAST_ZERO)

    def extent():
        unit = rnd.choice((1, 1, 512, 4096, 65536))
        length = rnd.choice((1, 3, 16)) * unit
        if rnd.random() < .1:
            length = rnd.randrange(1, 2 * MiB)
        if unit == 1:
            length += rnd.randrange(5000)
        length = min(length, size)
        if rnd.random() < .1:
            return size - length, length
        return rnd.randrange((size - length) // unit + 1) * unit, length

    def check(h, offset, length, what):
        got = h.pread(length, offset)
        if got != disk[offset:offset + length]:
            at = next(i for i in range(length) if got[i] != disk[offset + i])
            raise AssertionError("%s: byte %d of %d+%d is %d, not %d" % (
                what, at, offset, length, got[at], disk[offset + at]))

    # That host is written in Python, and slow.
    for i in range(ROUNDS // 3 if name == "fuse" else ROUNDS):
        h = rnd.choice(handles)
        offset, length = extent()
        end = offset + length
        what = rnd.choices(list(kinds), kinds.values())[0]
        fua = nbd.CMD_FLAG_FUA if rnd.random() < .15 else 0
        if what == "write":
            disk[offset:end] = pattern(i, length)
            h.pwrite(bytes(disk[offset:end]), offset, fua)
        elif what == "zero":
            flags = fua | rnd.choice(zero_flags)
            e = error_of(h.zero, length, offset, flags)
            if not (e in ("EOPNOTSUPP", "ENOTSUP") and
                    flags & nbd.CMD_FLAG_FAST_ZERO):
                assert e is None, "zero %d+%d flags %d: %s" % (
                    offset, length, flags, e)
                disk[offset:end] = bytes(length)
        elif what == "trim":
            h.trim(length, offset, fua)
            got = h.pread(length, offset)
            for k in range(length):
                if got[k] != disk[offset + k]:
                    assert got[k] == 0, "trim left something new"
                    disk[offset + k] = 0
        elif what == "flush":
            h.flush()
        # A little more than was touched: neighbours must survive.
        low, high = max(0, offset - 5000), min(size, end + 5000)
        check(rnd.choice(handles), low, high - low, "request %d (%s %d+%d)" %
              (i, what, offset, length))
    check(handles[0], 0, size, "the end")
    handles[0].flush()
    s.stop()
    assert host.content() == disk, "the file differs from what was served"


main(test)
