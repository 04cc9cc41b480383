#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards "FAST_ZERO refuses at once when slow": ramfs has no fallocate, so
# zeroes must be written there.  A client that asked for a fast zero gets
# ENOTSUP, no byte is touched, and a plain zero still works.

import sys

from hosts import *


def test(t):
    host = Host(t, "ramfs", 8 * MiB)
    s = t.server(host.image, *sys.argv[1:])
    h = s.connect()
    assert h.can_fast_zero()
    data = pattern(1, 4 * MiB)
    h.pwrite(data, 0)
    for _ in range(2):
        e = error_of(h.zero, 4 * MiB, 0, nbd.CMD_FLAG_FAST_ZERO)
        assert e in ("EOPNOTSUPP", "ENOTSUP"), "a slow FAST_ZERO: %s" % e
        assert h.pread(4 * MiB, 0) == data, "refused, yet changed"
    h.zero(4 * MiB - 2, 1)
    assert h.pread(4 * MiB, 0) == data[:1] + bytes(4 * MiB - 2) + data[-1:]
    s.stop()


main(test)
