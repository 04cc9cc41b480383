# SPDX-License-Identifier: BSD-3-Clause
"""A fact about the host that the rig rests on, without any server (Linux 6.18):
on ext4 a first write to a hole that fails is not made good by writing it again
and a successful fdatasync; dropping the pages from the cache in between helps.
xfs has no such fault.

Skipped where ext4 has no such fault: there swarm.py may fail writes to holes.
"""

import errno
import os
import sys

import rig

OFFSET = 8192


def write_and_sync(fd, data):
    """The errno, or 0."""
    os.pwrite(fd, data, OFFSET)
    try:
        os.fdatasync(fd)
    except OSError as e:
        return e.errno
    return 0


def what_is_left(disk, image, evict):
    """Write, which fails; again, which succeeds; cut the power."""
    fd = os.open(disk.boot(image, restore=True), os.O_RDWR)
    try:
        os.fsync(fd)
        disk.model.ask("fail writes=1")
        assert write_and_sync(fd, b"A" * 4096) == errno.EIO
        os.fdatasync(fd)
        if evict:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        assert write_and_sync(fd, b"B" * 4096) == 0
        assert os.pread(fd, 1, OFFSET) == b"B"
        disk.model.ask("cut mode=none")
    finally:
        os.close(fd)
    disk.down()
    with open(disk.boot(image), "rb") as f:
        f.seek(OFFSET)
        left = f.read(4096)
    disk.down()
    return left


def main():
    rig.check_host(["ext4", "xfs"])
    rig.enter_namespace()
    disks = {fs: rig.Rig(rig.Pristine(fs), fs) for fs in ("ext4", "xfs")}
    for fs, evict, image in (("ext4", True, "hole.img"),
                             ("ext4", False, "data.img"),
                             ("xfs", False, "hole.img")):
        left = what_is_left(disks[fs], image, evict)
        assert left == b"B" * 4096, (fs, evict, image, left[:8])
    left = what_is_left(disks["ext4"], "hole.img", False)
    for disk in disks.values():
        disk.stop()
    if left == b"B" * 4096:
        rig.skip("this kernel's ext4 has no such fault")
    assert left == bytes(4096), left[:8]
    return 0


if __name__ == "__main__":
    sys.exit(main())
