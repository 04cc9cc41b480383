#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards "ENOSPC of a write is the client's, and not sticky": a sparse image on
# a full file system answers ENOSPC (a guest can be paused on that), goes on
# overwriting what it has, flushes, and accepts new data after a trim.

import sys

from roottest import *

CHUNK = 256 * KiB


def fill(where, leave):
    """Take all space of the file system but about @leave bytes."""
    with open(os.path.join(where, "ballast"), "wb") as f:
        while True:
            st = os.statvfs(where)
            free = st.f_bavail * st.f_frsize
            if free <= leave + MiB:
                return
            at = f.seek(0, os.SEEK_END)
            os.posix_fallocate(f.fileno(), at,
                               min(64 * MiB, (free - leave) // 2 // 4096
                                   * 4096))


def test(t):
    kind, args = sys.argv[1], sys.argv[2:]
    where = t.filesystem(kind, 320 * MiB if kind != "tmpfs" else 24 * MiB)
    fill(where, 8 * MiB)
    image = os.path.join(where, "disk.img")
    with open(image, "wb") as f:
        f.truncate(1024 * MiB)
    s = t.server(image, *args)
    h, other = s.connect(), s.connect()

    written = {}
    error = None
    for i in range(1024 * MiB // CHUNK):
        error = error_of(h.pwrite, pattern(i, CHUNK), i * CHUNK)
        if error:
            break
        written[i] = pattern(i, CHUNK)
    full = i
    assert error == "ENOSPC", "a full host: %s" % error
    assert full >= 8, "only %d chunks fitted" % full
    assert error_of(other.flush) is None, "FLUSH on a full host"
    for _ in range(2):
        # Some room may have come back with the flush; not that much.
        e = error_of(h.pwrite, pattern(1, 32 * MiB), 512 * MiB)
        assert e == "ENOSPC", "again: %s" % e
    e = error_of(h.zero, 64 * MiB, 640 * MiB, nbd.CMD_FLAG_NO_HOLE)
    assert e == "ENOSPC", "allocating zero: %s" % e

    # What is allocated can be overwritten, also durably.
    for i in 0, 1, 2:
        written[i] = pattern(1000 + i, CHUNK)
        e = error_of(other.pwrite, written[i], i * CHUNK, nbd.CMD_FLAG_FUA)
        assert e is None, "overwriting: %s" % e
    assert error_of(h.flush) is None

    # The part of the failed writes that did fit is given back, too.
    h.trim(32 * MiB, 512 * MiB)
    h.trim(64 * MiB, 640 * MiB)
    for i in range(full // 2, full):
        h.trim(CHUNK, i * CHUNK)
        del written[i]
    assert error_of(h.flush) is None
    for i in range(full, full + full // 4):
        written[i] = pattern(2000 + i, CHUNK)
        e = error_of(h.pwrite, written[i], i * CHUNK)
        assert e is None, "writing after a trim: %s" % e
    assert error_of(h.flush) is None
    s.stop()
    s.expect_metric("ubd_lost_data", 0)
    with open(image, "rb") as f:
        for i, data in written.items():
            f.seek(i * CHUNK)
            assert f.read(CHUNK) == data, "chunk %d" % i


main(test)
