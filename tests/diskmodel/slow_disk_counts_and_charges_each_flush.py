# SPDX-License-Identifier: BSD-3-Clause
"""scripts/slow-disk reports as many flushes as there were fdatasync calls, and
books 8 ms for each.  Through a loop device, the kernel's own count agrees.
"""

import json
import os
import subprocess
import sys
import tempfile

import slowdisktest

NR_FLUSHES = 5
FLUSHES = 15  # Field 16 of a block device's stat file.


def disk_flushes():
    with open(f"/sys/block/{os.environ['UBD_SLOW_DEV'][5:]}/stat",
              encoding="ascii") as f:
        return int(f.read().split()[FLUSHES])


def inside():
    has_loop = "UBD_SLOW_DEV" in os.environ
    before = disk_flushes() if has_loop else 0
    fd = os.open(os.environ["UBD_SLOW_DISK"], os.O_RDWR)
    for i in range(NR_FLUSHES):
        os.pwrite(fd, bytes([i + 1]) * 4096, i * 8192)
        os.fdatasync(fd)
    if has_loop:
        assert disk_flushes() - before == NR_FLUSHES
    os.close(fd)


def check(fs):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "stats")
        subprocess.run([slowdisktest.SLOW_DISK, "--fs", fs, "--size", "64M",
                        "--stats", path, "--", sys.executable, *sys.argv],
                       check=True)
        with open(path, encoding="utf-8") as f:
            stats = json.load(f)
    assert stats["flushes"] == NR_FLUSHES, stats
    assert stats["flushes_done"] == NR_FLUSHES, stats
    assert stats["busy_ns"] == NR_FLUSHES * 8000000, stats
    assert stats["writes"] == NR_FLUSHES, stats
    assert stats["write_bytes"] == NR_FLUSHES * 4096, stats
    assert stats["settings"]["flush_ms"] == 8, stats


def main():
    if "UBD_SLOW_DISK" in os.environ:
        inside()
        return
    slowdisktest.check_host()
    check("file")
    check("none")


if __name__ == "__main__":
    main()
