#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards "WRITE_ZEROES takes any 32-bit count": nbdkit's own fallback stops
# advancing after 64 MiB and reports success, so a zero must never fall
# through to it, also on a host that can only write zeroes.

import sys

from hosts import *


def test(t):
    name, args = sys.argv[1], sys.argv[2:]
    size = 160 * MiB + 4096
    host = Host(t, name, size, disk_size=320 * MiB)
    marks = [0, 4096] + [i * 16 * MiB + 12345 for i in range(1, 10)] + \
        [size - 1024]
    for flags in 0, nbd.CMD_FLAG_NO_HOLE | nbd.CMD_FLAG_FUA:
        s = t.server(host.image, *args)
        h = s.connect()
        for i, at in enumerate(marks):
            h.pwrite(pattern(i, 512), at)
        first, last = 100, size - 1000
        h.zero(last - first, first, flags)
        assert h.pread(first, 0) == pattern(0, 512)[:first]
        assert h.pread(1000, last) == (pattern(len(marks) - 1, 512)[24:] +
                                       bytes(512))
        h.flush()
        step = 8 * MiB
        for at in range(first, last, step):
            n = min(step, last - at)
            assert h.pread(n, at) == bytes(n), "stale data near %d" % at
        s.stop()
        assert os.stat(host.image).st_size == (0 if host.is_block else size)


main(test)
