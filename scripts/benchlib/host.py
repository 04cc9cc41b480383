# SPDX-License-Identifier: BSD-3-Clause
"""The host: the disk under the image, the image and its page cache."""

import ctypes
import os
import platform
import threading
import time

_libc = ctypes.CDLL(None, use_errno=True)
_SYS_CACHESTAT = 451  # The same number on every architecture; Linux >= 6.5.
_CLONE_NEWNS = 0x20000
MIB = 1 << 20


def prctl(option, value):
    """prctl(2); what it is used for (cleaning up) is worth no failure."""
    _libc.prctl(option, value, 0, 0, 0)


def enter_mounts(fd):
    """Make the mount namespace @fd ours; the working directory becomes /."""
    if _libc.setns(fd, _CLONE_NEWNS) != 0:
        raise OSError(ctypes.get_errno(), "setns")


def read_text(path, default=""):
    try:
        with open(path, encoding="utf-8", errors="replace") as f:
            return f.read()
    except OSError:
        return default


class Disk:
    """The disks that hold a folder, and what they have completed.

    Flushes are field 16 of /sys/block/DEV/stat, counted for whole disks only.
    A device-mapper or RAID device counts none, so its lowest disks are read.
    """

    def __init__(self, folder):
        self.name = "none"
        self.stats = []
        self.why_unknown = ""
        self.native_fua = False
        dev = os.stat(folder).st_dev
        node = "/sys/dev/block/%d:%d" % (os.major(dev), os.minor(dev))
        if not os.path.exists(node):  # btrfs: the number belongs to no device.
            node = self._node_of_mount(folder)
        if not node:
            self.why_unknown = "the folder is not on a disk"
            return
        names = sorted(self._leaves(os.path.realpath(node)))
        self.name = "+".join(names)
        for name in names:
            queue = "/sys/block/%s/queue/" % name
            if "back" not in read_text(queue + "write_cache"):
                self.why_unknown = name + " has no volatile cache to flush"
            self.native_fua |= read_text(queue + "fua").strip() == "1"
            self.stats.append("/sys/block/%s/stat" % name)

    @staticmethod
    def _node_of_mount(folder):
        best, source = "", ""
        folder = os.path.realpath(folder)
        for line in read_text("/proc/self/mountinfo").splitlines():
            left, right = line.split(" - ", 1)
            point = left.split()[4]
            inside = folder == point or folder.startswith(
                point.rstrip("/") + "/")
            if inside and len(point) >= len(best):
                best, source = point, right.split()[1]
        if not source.startswith("/dev/"):
            return None
        return "/sys/class/block/" + os.path.basename(os.path.realpath(source))

    @classmethod
    def _leaves(cls, node):
        if os.path.exists(node + "/partition"):
            node = os.path.dirname(node)
        slaves = node + "/slaves"
        below = os.listdir(slaves) if os.path.isdir(slaves) else []
        if not below:
            return {os.path.basename(node)}
        return set().union(*(
            cls._leaves(os.path.realpath(slaves + "/" + s)) for s in below))

    def read(self):
        """(flushes, writes, bytes written) completed since boot."""
        total = [0, 0, 0]
        for path in self.stats:
            field = read_text(path).split()
            total[0] += int(field[15]) if len(field) > 15 else 0
            total[1] += int(field[4])
            total[2] += int(field[6]) * 512
        return total


class Image:
    """The one image that all servers serve in turn.

    They see it as @path; for us it is below @root.  With @make it is a new
    file that goes away in the end, else it is there and stays.
    """

    def __init__(self, path, size, root="", make=True):
        self.path = path
        self.size = size
        self._seen = root + path
        self._made = make
        self.fd = os.open(self._seen, os.O_RDWR | (
            os.O_CREAT | os.O_EXCL if make else 0), 0o600)
        self._buf = bytearray(os.urandom(MIB))
        for offset in range(0, size, MIB):
            os.pwrite(self.fd, self._buf, offset)
        os.fsync(self.fd)

    def close(self):
        os.close(self.fd)
        if self._made:
            os.unlink(self._seen)

    def cache(self):
        """(cached, dirty or under write-out) bytes, None if unknown."""
        span = (ctypes.c_uint64 * 2)(0, 0)
        out = (ctypes.c_uint64 * 5)()
        if _libc.syscall(_SYS_CACHESTAT, self.fd, span, out, 0) != 0:
            return None
        page = os.sysconf("SC_PAGE_SIZE")
        return out[0] * page, (out[1] + out[2]) * page

    def settle(self, warm_bytes):
        """Bring the image into the same state before every single run.

        On ext4 a 4 KiB write into a large folio costs four times one into a
        small folio, and which of them the cache holds depends on how the
        *previous* server filled it.  So: make everything durable, drop all of
        it, and where a load wants a warm cache read it in again with readahead
        off (FADV_RANDOM), which gives 4 KiB folios.  The same for all servers.
        Returns what went wrong, or "".
        """
        os.fdatasync(self.fd)
        cached = (0, 0)
        for _ in range(5):  # A page that the kernel was looking at stays.
            os.posix_fadvise(self.fd, 0, 0, os.POSIX_FADV_DONTNEED)
            cached = self.cache()
            if not cached or not cached[0]:
                break
            time.sleep(0.01)
        trouble = ""
        if cached and cached[0] > MIB:
            trouble = "%d MiB would not leave the cache" % (cached[0] // MIB)
        fd = os.open(self._seen, os.O_RDONLY)
        try:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            for offset in range(0, warm_bytes, MIB):
                os.preadv(fd, [self._buf], offset)
        finally:
            os.close(fd)
        cached = self.cache()
        if cached and cached[0] < warm_bytes * 0.99:
            trouble = "the cache does not keep the image"
        return trouble


class DirtySampler(threading.Thread):
    """Peak of the image's dirty bytes; of the whole host without cachestat.

    Samples are points in time, so the peak is a lower bound.  Counting walks
    the page cache, so it pauses for long enough to cost at most 2 %.
    """

    def __init__(self, image):
        super().__init__(daemon=True)
        self.image = image
        self.peak = 0
        self.exact = image.cache() is not None
        self._stop_asked = threading.Event()
        self._base = 0 if self.exact else self._host_dirty()

    @staticmethod
    def _host_dirty():
        total = 0
        for line in read_text("/proc/meminfo").splitlines():
            if line.startswith(("Dirty:", "Writeback:")):
                total += int(line.split()[1]) * 1024
        return total

    def _sample(self):
        now = self.image.cache()[1] if self.exact else max(
            0, self._host_dirty() - self._base)
        self.peak = max(self.peak, now)

    def run(self):
        cost = 0.0
        while not self._stop_asked.wait(min(0.5, max(0.004, cost * 50))):
            start = time.monotonic()
            self._sample()
            cost = time.monotonic() - start

    def stop(self):
        self._sample()
        self._stop_asked.set()
        self.join()
        return self.peak


def machine(folder, disk):
    """What a reader needs to know about the machine, as (name, value)."""
    model = "unknown CPU"
    for line in read_text("/proc/cpuinfo").splitlines():
        if line.startswith("model name"):
            model = line.split(":", 1)[1].strip()
            break
    memory = read_text("/proc/meminfo").split()
    fs, point = "unknown", ""
    for line in read_text("/proc/mounts").splitlines():
        where, kind = line.split()[1:3]
        inside = (os.path.realpath(folder) + "/").startswith(
            where.rstrip("/") + "/")
        if inside and len(where) >= len(point):
            fs, point = kind, where
    flushes = disk.why_unknown or "flushes counted"
    return [
        ("processor", "%s, %d in use" % (model, len(os.sched_getaffinity(0)))),
        ("memory", "%d MiB" % (int(memory[1]) // 1024)),
        ("kernel", "%s %s" % (platform.system(), platform.release())),
        ("image on", "%s, disk %s (%s)" % (fs, disk.name, flushes)),
    ]
