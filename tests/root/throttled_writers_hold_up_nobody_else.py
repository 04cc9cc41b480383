#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards "only a write that would pass the limit waits": on a disk that is slow
# to write, reads and flushes of others are answered while the writers wait for
# room, and what the writers wrote is bounded and correct.

import sys

from roottest import *

LIMIT = MiB
SIZE = 24 * MiB
BLOCK = 256 * KiB
READS = 40


def test(t):
    disk = os.environ["UBD_SLOW_DISK"]
    s = t.server(disk, "dirty-limit=%dM" % (LIMIT // MiB), *sys.argv[1:])
    writers = [s.connect() for _ in range(3)]
    reader, flusher = s.connect(), s.connect()
    p = Pump([*writers, reader, flusher])
    nr = SIZE // BLOCK
    buffers = [nbd.Buffer.from_bytearray(bytearray(pattern(i, BLOCK)))
               for i in range(nr)]
    for i in range(nr):
        w = writers[i % 3]
        p.issue(w, w.aio_pwrite(buffers[i], i * BLOCK), "write")
    into = nbd.Buffer(4096)

    def read(i):
        where = SIZE + i * 65536
        p.issue(reader, reader.aio_pread(into, where), "read")

    read(0)
    p.issue(flusher, flusher.aio_flush(), "flush")
    done = {"write": 0, "read": 0, "flush": 0}
    writes_before = {}
    while p.pending:
        for tag, error in p.reap():
            assert error is None, "%s: %s" % (tag, error)
            done[tag] += 1
            if tag == "read" and done["read"] < READS:
                read(done["read"])
            elif tag == "flush" and done["flush"] < 3:
                p.issue(flusher, flusher.aio_flush(), "flush")
            if tag != "write":
                writes_before[tag] = done["write"]
    assert done == {"write": nr, "read": READS, "flush": 3}, done
    for tag, seen in writes_before.items():
        assert seen < nr, "the last %s was answered after all %d writes" % (
            tag, nr)
    print("writes answered before the last read and flush:", writes_before)
    s.stop()
    assert s.metric("ubd_throttle_seconds_total") > 0, "nobody waited"
    peak = s.metric("ubd_dirty_bytes_peak")
    assert peak <= LIMIT + 3 * 16 * BLOCK, "peak %d" % peak
    with open(disk, "rb") as f:
        for i in range(nr):
            assert f.read(BLOCK) == pattern(i, BLOCK), "block %d" % i


def enter_slow_disk():
    """Start again, with a slow disk.  Nothing of ours may exist before that:
    nobody would undo it.
    """
    slow_disk = os.path.join(os.environ["UBD_SRC"], "scripts", "slow-disk")
    if os.geteuid() != 0:
        skip("needs root")
    need("losetup", "unshare")
    for device in "/dev/fuse", "/dev/loop-control":
        if not os.path.exists(device):
            skip("needs " + device)
    os.execv(slow_disk, [slow_disk, "--fs", "none", "--size", "64M",
                         "--set", "write_ms=6", "--", sys.executable,
                         *sys.argv])


if "UBD_SLOW_DISK" not in os.environ:
    enter_slow_disk()
main(test)
