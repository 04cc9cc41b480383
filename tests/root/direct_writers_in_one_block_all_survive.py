#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the lock around read-modify-write in direct mode: a disk with 4096-byte
# sectors takes no smaller write, so 512-byte writes become read, change, write
# of a whole block.  Eight writers in one block must not overwrite each other
# with what they read, and neither may an aligned write or an unaligned zero
# next to them be undone.

import random
import sys

from hosts import *

BLOCK, SLOT = 4096, 512
ROUNDS = 250


def test(t):
    host = Host(t, sys.argv[1], 4 * MiB)
    s = t.server(host.image, *sys.argv[2:])
    handles = [s.connect() for _ in range(4)]
    seed = int(os.environ.get("UBD_SEED", random.randrange(1 << 32)))
    print("UBD_SEED=%d" % seed, flush=True)
    rnd = random.Random(seed)
    p = Pump(handles)
    base = 5 * BLOCK
    want = bytearray(6 * BLOCK)
    h = handles[0]
    h.pwrite(bytes(want), base)

    def write(at, data, flags=0):
        want[at:at + len(data)] = data
        c = rnd.choice(handles)
        buf = nbd.Buffer.from_bytearray(bytearray(data))
        p.issue(c, c.aio_pwrite(buf, base + at, flags=flags), "write %d" % at)

    def zero(at, n):
        want[at:at + n] = bytes(n)
        c = rnd.choice(handles)
        p.issue(c, c.aio_zero(n, base + at), "zero %d" % at)

    for i in range(ROUNDS):
        todo = []
        # No two of these overlap; together they cover six blocks.
        #   0: eight small writes     1: one aligned write
        #   2: small and an unaligned zero   3+4: one write across the border
        #   5: an aligned write of the block, or eight small ones
        tag = iter(range(i * 100, i * 100 + 100))
        for k in range(8):
            todo.append((write, k * SLOT, pattern(next(tag), SLOT)))
        todo.append((write, BLOCK, pattern(next(tag), BLOCK)))
        for k in 0, 1, 6, 7:
            todo.append((write, 2 * BLOCK + k * SLOT,
                         pattern(next(tag), SLOT)))
        todo.append((zero, 2 * BLOCK + 2 * SLOT, 4 * SLOT - 100))
        todo.append((write, 3 * BLOCK + SLOT, pattern(next(tag), BLOCK + 99)))
        todo.append((write, 3 * BLOCK, pattern(next(tag), SLOT)))
        if i % 2:
            todo.append((write, 5 * BLOCK, pattern(next(tag), BLOCK)))
        else:
            for k in range(8):
                todo.append((write, 5 * BLOCK + k * SLOT,
                             pattern(next(tag), SLOT),
                             rnd.choice((0, nbd.CMD_FLAG_FUA))))
        rnd.shuffle(todo)
        for call, *a in todo:
            call(*a)
        for what, error in p.drain():
            assert error is None, "%s: %s" % (what, error)
        got = h.pread(len(want), base)
        for at in range(0, len(want), 4):
            assert got[at:at + 4] == want[at:at + 4], \
                "round %d: block %d, byte %d was overwritten by a neighbour" \
                % (i, at // BLOCK, at % BLOCK)
    h.flush()
    s.stop()
    assert host.content()[base:base + len(want)] == want


main(test)
