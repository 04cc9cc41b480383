#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards "one open file per disk, opened before the first write": the kernel
# writes dirty pages back whenever it likes and tells each open file once.
# A server that opened a file per connection, or again for the sync, would
# never hear of it.

import ctypes
import sys

from roottest import *


def write_back(path, how):
    """Let somebody else write the image's pages back; it fails."""
    fd = os.open(path, os.O_RDWR)
    try:
        if how == "sync_file_range":
            before, write, after = 1, 2, 4
            r = libc.sync_file_range(fd, ctypes.c_long(0), ctypes.c_long(0),
                                     before | write | after)
            failed = r != 0
        elif how == "syncfs":
            libc.syncfs(fd)  # Not every file system reports it here.
            failed = True
        else:
            failed = False
            try:
                os.fdatasync(fd)
            except OSError:
                failed = True
        assert failed, "this host was expected to lose data"
    finally:
        os.close(fd)


def test(t):
    host = LossyHost(t, sys.argv[1])
    for how in "sync_file_range", "fdatasync", "syncfs":
        s = t.server(host.image, "cache=barrier", *sys.argv[2:])
        h = s.connect()
        h.pwrite(pattern(1, 4096), 0)
        h.flush()
        h.pwrite(pattern(2, MiB), 4 * MiB)
        write_back(host.image, how)
        # What comes after is healthy; the FLUSH still covers the lost write.
        late = s.connect()
        late.pwrite(pattern(3, 4096), 8192)
        error = error_of(late.flush)
        assert error in ("EIO", "ENOSPC"), "%s: FLUSH: %s" % (how, error)
        for c in (h, late, s.connect()):
            assert error_of(c.flush) == error, how
        s.stop()
        s.expect_metric("ubd_lost_data", 1)


main(test)
