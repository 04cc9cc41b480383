# SPDX-License-Identifier: BSD-3-Clause
#
# What of a file is in the host's page cache, and how much of that is dirty:
# cachestat(2), Linux 6.5.  Asked of the kernel, not of the plugin.  And a load
# of writes that is held to its dirty-limit with that.

import contextlib

from ubdtest import *
from ubdtest import _libc

SYS_CACHESTAT = 451  # The same number on every architecture.
PAGE = os.sysconf("SC_PAGE_SIZE")


class _Range(ctypes.Structure):
    _fields_ = [("off", ctypes.c_uint64), ("len", ctypes.c_uint64)]


class _Answer(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in
                ("cache", "dirty", "writeback", "evicted", "recently_evicted")]


class PageCache:
    """Bytes of one file; what is being written back is still dirty to us."""

    def __init__(self, t, path):
        self.fd = os.open(path, os.O_RDONLY)
        t.at_end(os.close, self.fd)
        try:
            self._ask()
        except OSError as e:
            raise Skip(f"no cachestat(2): {e.strerror}") from None
        kind = t.run(["stat", "-f", "-c", "%T", path]).strip()
        if kind in ("tmpfs", "ramfs"):
            raise Skip(f"{kind} writes nothing out")

    def _ask(self):
        answer = _Answer()
        if _libc.syscall(SYS_CACHESTAT, self.fd, ctypes.byref(_Range(0, 0)),
                         ctypes.byref(answer), 0) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
        return answer

    def cached(self):
        return self._ask().cache * PAGE

    def dirty(self):
        answer = self._ask()
        return (answer.dirty + answer.writeback) * PAGE

    def write_back(self):
        """All of it, without a flush of the disk."""
        before, write, after = 1, 2, 4
        zero = ctypes.c_long(0)
        equal(_libc.sync_file_range(self.fd, zero, zero,
                                    before | write | after), 0,
              "sync_file_range")

    @contextlib.contextmanager
    def watched(self):
        """While inside, a thread looks all the time; yields its Watch."""
        watch = _Watch(self)
        watch.start()
        try:
            yield watch
        finally:
            watch.is_over.set()
            watch.join()
            watch.look()


class _Watch(threading.Thread):
    def __init__(self, cache):
        super().__init__(daemon=True)
        self.cache = cache
        self.is_over = threading.Event()
        self.dirty_max = self.nr = 0

    def look(self):
        self.dirty_max = max(self.dirty_max, self.cache.dirty())
        self.nr += 1

    def run(self):
        while not self.is_over.wait(0.0005):
            self.look()


class Load:
    """Writes on one image, and what the image must contain afterwards."""

    def __init__(self, t, size, limit, *options, connections=1):
        self.t, self.limit = t, limit
        self.img = t.image(size, name=os.path.basename(t.new_path("load.img")))
        self.server = t.serve(self.img, f"dirty-limit={limit // MiB}M", *options)
        self.handles = [self.server.connect() for _ in range(connections)]
        self.content = bytearray(size)
        self.cache = PageCache(t, self.img)
        self.what = f"dirty-limit={limit} {' '.join(options)}"

    def write(self, offset, data, connection=0, flags=0):
        self.content[offset:offset + len(data)] = data
        self.handles[connection].pwrite(data, offset, flags)

    def end(self, watch, in_flight):
        """@in_flight: most bytes of writes that ran at the same time."""
        bound = self.limit + in_flight
        check(watch.dirty_max <= bound,
              f"{self.what}: {watch.dirty_max} bytes were dirty, not at most "
              f"{self.limit} and {in_flight} in flight")
        m = self.server.stop()
        peak = m("ubd_dirty_bytes_peak")
        check(0 < peak <= bound, f"{self.what}: ubd_dirty_bytes_peak {peak}")
        # The metric is told of writes by the batch: a quarter of the limit.
        check(watch.dirty_max <= peak + self.limit // 4 + in_flight,
              f"{self.what}: the kernel saw {watch.dirty_max} dirty bytes, "
              f"ubd_dirty_bytes_peak is {peak}")
        check(m("ubd_writeout_bytes_total") > 0, f"{self.what}: no write-out")
        equal(m("ubd_lost_data"), 0, "ubd_lost_data")
        same_bytes(read_file(self.img), self.content, self.what)
        return m


def variants():
    for io in engines():
        for evict in ("true", "false"):
            yield f"io={io}", f"evict={evict}"
