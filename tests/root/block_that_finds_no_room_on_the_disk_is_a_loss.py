#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards D4 for calls that only start to write: where ext4 cannot find room on
# the disk for what was written to a hole (here because a bitmap of its own is
# broken), it drops the data, marks nothing, and tells only whoever asked for
# the write-out: every later fdatasync succeeds.  So that answer is a loss: of
# a write that started its own write-out, as flushes are frequent (if this host
# is fast enough for that; else the flush asks), and without a flush where the
# dirty-limit starts it.

import re
import sys
import time

from roottest import *

HOLES = 1 * MiB


def break_block_bitmap(fs):
    """Its checksum is wrong from now on; there is one group of blocks."""
    block = int(re.search(r"Block bitmap at (\d+)", run("dumpe2fs", fs))[1])
    with open(fs, "r+b") as f:
        f.seek(block * 4096 + 1000)
        f.write(bytes(range(64)))


def make_host(t):
    """Fast enough that flushes are soon over."""
    fs = os.path.join(t.tmpfs(96 * MiB), "fs")
    with open(fs, "wb") as f:
        f.truncate(64 * MiB)
    run("mkfs.ext4", "-q", "-F", "-b", "4096", "-g", "32768", fs, "16384")
    where = t.mount("ext4", fs, "loop", name="healthy")
    # No block at all: beside others ext4 may say ENOSPC to itself, and then
    # nobody is told, not even by fdatasync (Linux 6.18).
    with open(os.path.join(where, "disk.img"), "wb") as f:
        f.truncate(8 * MiB)
    run("umount", where)
    break_block_bitmap(fs)
    return os.path.join(
        t.mount("ext4", fs, "loop,no_prefetch_block_bitmaps", name="broken"),
        "disk.img")


def losses(s):
    return log_lines(s.messages(), r"\blost\b")


def test(t):
    need("mkfs.ext4", "dumpe2fs")
    args = sys.argv[1:]
    s = t.server(make_host(t), *args)
    h, other = s.connect(), s.connect()
    for i in range(1 if args else 64):  # Frequent, with nothing to write.
        h.trim(4096, 0)
        assert error_of(h.flush) is None, "the host is healthy up to here"

    if args:
        for i in range(8):
            if error_of(h.pwrite, pattern(i, 64 * KiB), HOLES + i * 64 * KiB):
                break  # Now ext4 knows.
        end = time.monotonic() + 20
        while not losses(s):
            assert time.monotonic() < end, "a loss that nobody tells of"
            time.sleep(0.01)
    else:
        h.pwrite(pattern(1, 4096), HOLES)
    error = error_of(h.flush)
    assert error is not None, "FLUSH after a loss"
    for c in h, other, s.connect():
        assert error_of(c.flush) == error
        assert error_of(c.pwrite, bytes(4096), 0, nbd.CMD_FLAG_FUA) == error
    s.stop()
    s.expect_metric("ubd_lost_data", 1)
    assert len(losses(s)) == 1, s.messages()


main(test)
