# SPDX-License-Identifier: BSD-3-Clause
#
# The kinds of host a disk can live on, by name: "ext4", "xfs", "btrfs",
# "tmpfs", "ramfs", "fuse" (a regular file), "block" (a block device).  "-4096"
# on the end means a disk with 4096-byte sectors.  ramfs has no fallocate and
# no O_DIRECT; our FUSE can do nothing but read, write and sync.

from roottest import *
from tinyfuse import TinyFuse

SIZES = {"ext4": 64 * MiB, "xfs": 320 * MiB, "btrfs": 256 * MiB,
         "tmpfs": 512 * MiB, "ramfs": 0}


def cachestat(fd, length=0):
    """Bytes that are cached, and that are dirty or being written back; of the
    first @length, or of all.
    """
    answer = (ctypes.c_uint64 * 5)()
    if libc.syscall(451, fd, (ctypes.c_uint64 * 2)(0, length), answer, 0) != 0:
        skip("no cachestat(2): " + os.strerror(ctypes.get_errno()))
    return answer[0] * 4096, (answer[1] + answer[2]) * 4096


class Host:
    """A disk image of @size bytes on the kind of host that @name says."""

    def __init__(self, t, name, size, disk_size=None):
        self.kind, _, sector = name.partition("-")
        self.is_block = self.kind == "block"
        self.disk = None
        self.size = size
        sector = int(sector or 512)
        if self.is_block:
            self.disk = t.loop(t.sparse("backing", size), sector=sector,
                               direct_io=True)
            self.image = self.disk.dev
            self.where = None
        elif self.kind == "fuse":
            self.image = TinyFuse(t, size).image
        else:
            self.where = t.filesystem(self.kind,
                                      disk_size or SIZES[self.kind], sector)
            if self.kind not in ("tmpfs", "ramfs"):
                self.disk = t.disk
            self.image = os.path.join(self.where, "disk.img")
            with open(self.image, "wb") as f:
                f.truncate(size)

    def blocks(self):
        """Bytes that the image, or the disk's own file, has allocated."""
        path = self.disk.file if self.is_block else self.image
        return os.stat(path).st_blocks * 512

    def content(self):
        with open(self.image, "rb") as f:
            data = f.read(self.size)
            assert f.read(1) == b"", "the image has grown"
        return data
