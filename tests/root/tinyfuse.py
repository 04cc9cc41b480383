# SPDX-License-Identifier: BSD-3-Clause
#
# A file system with one file, disk.img, kept in memory, that answers what a
# test wants: locks that are not supported, a sync that fails once or hangs
# until the test lets it go, writes that fail.  It speaks the kernel's FUSE protocol
# directly (linux/fuse.h, 7.31) and serves from a thread of its own process.
#
# The process is forked with the mount in the test's namespace; it ends when
# the mount goes.

import errno
import mmap
import time

from roottest import *

HDR = struct.Struct("=IIQQIIII")
LOOKUP, FORGET, GETATTR, SETATTR, OPEN, READ, WRITE = 1, 2, 3, 4, 14, 15, 16
STATFS, RELEASE, FSYNC, FLUSH, INIT, OPENDIR = 17, 18, 20, 25, 26, 27
GETLK, SETLK, SETLKW, INTERRUPT, DESTROY, BATCH_FORGET = 31, 32, 33, 36, 38, 42
FUSE_POSIX_LOCKS = 1 << 1


class TinyFuse:
    """@lock_errno answers every lock request; @sync_errnos are the answers
    to the first syncs, after which they succeed."""

    def __init__(self, t, size, lock_errno=0, sync_errnos=()):
        if not os.path.exists("/dev/fuse"):
            skip("no /dev/fuse")
        self.size = size
        self.lock_errno = lock_errno
        self.sync_errnos = list(sync_errnos)
        self.data = bytearray(size)
        # What the test may change at any time: an errno for all writes, one
        # for the syncs that are let go, whether syncs are held; and how many
        # are.  Shared with the process below; a byte on the pipe wakes it.
        self.control = mmap.mmap(-1, 4096)
        self.wake_read, self.wake_write = os.pipe()
        self.held = []
        t.serial += 1
        where = t.path("fuse%d" % t.serial)
        os.mkdir(where)
        fd = os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC)
        options = "fd=%d,rootmode=40000,user_id=0,group_id=0" % fd
        if libc.mount(b"tiny", where.encode(), b"fuse", 0,
                      options.encode()) != 0:
            e = ctypes.get_errno()
            os.close(fd)
            skip("cannot mount a FUSE file system: " + os.strerror(e))
        pid = os.fork()
        if pid == 0:
            try:
                signal.set_wakeup_fd(-1)
                for n in signal.SIGTERM, signal.SIGINT, signal.SIGHUP:
                    signal.signal(n, signal.SIG_DFL)
                libc.prctl(1, signal.SIGKILL)  # Die with the test.
                self.serve(fd)
            finally:
                os._exit(0)
        os.close(fd)
        self.image = os.path.join(where, "disk.img")

        def end():
            libc.umount2(where.encode(), 0)
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            libc.umount2(where.encode(), MNT_DETACH)

        t.cleanup.callback(end)

    def fail_writes(self, error):
        """From now on; 0: no more."""
        self.control[0] = error

    def hold_syncs(self):
        self.control[2] = 1

    def wait_held(self, deadline=60):
        end = time.monotonic() + deadline
        while self.control[3] == 0:
            assert time.monotonic() < end, "no sync has come to be held"
            time.sleep(0.003)

    def release_syncs(self, error=0):
        """Hold no more, and answer @error to those that are held."""
        self.control[1], self.control[2] = error, 0
        os.write(self.wake_write, b"x")

    def answer_held(self, fd):
        os.read(self.wake_read, 1)
        for unique in self.held:
            with contextlib.suppress(OSError):  # It was interrupted.
                os.write(fd, struct.pack("=IiQ", 16, -self.control[1], unique))
        self.held.clear()
        self.control[3] = 0

    def attr(self, ino):
        mode, size = (0o40755, 0) if ino == 1 else (0o100644, self.size)
        return struct.pack("=QQQQQQIIIIIIIIII", ino, size, size // 512, 0, 0,
                           0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)

    def serve(self, fd):
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.register(self.wake_read, select.POLLIN)
        while True:
            if self.wake_read in [f for f, _ in poll.poll()]:
                self.answer_held(fd)
                continue
            try:
                req = os.read(fd, 2 * MiB)
            except OSError as e:
                if e.errno in (errno.EINTR, errno.EAGAIN, errno.ENOENT):
                    continue
                return
            _, op, unique, node, *_ = HDR.unpack_from(req)
            if op == FSYNC and self.control[2]:
                self.held.append(unique)
                self.control[3] = len(self.held)
                continue
            answer = self.handle(op, node, req[HDR.size:])
            if answer is None:
                continue
            err, body = (-answer, b"") if isinstance(answer, int) else \
                (0, answer)
            with contextlib.suppress(OSError):  # It was interrupted.
                os.write(fd, struct.pack("=IiQ", 16 + len(body), err,
                                         unique) + body)

    def handle(self, op, node, arg):
        if op == INIT:
            # Seven fields, then 7.23's up to 64 bytes.
            return struct.pack("=IIIIHHIIHHIIIIII", 7, 31, 65536,
                               FUSE_POSIX_LOCKS, 16, 12, MiB, 1, 256, 0,
                               0, 0, 0, 0, 0, 0)
        if op in (FORGET, BATCH_FORGET, INTERRUPT):
            return None
        if op == LOOKUP:
            if arg.rstrip(b"\0") != b"disk.img":
                return errno.ENOENT
            return struct.pack("=QQQQII", 2, 0, 60, 60, 0, 0) + self.attr(2)
        if op in (GETATTR, SETATTR):
            return struct.pack("=QII", 60, 0, 0) + self.attr(node)
        if op in (OPEN, OPENDIR):
            return struct.pack("=QII", 1, 0, 0)
        if op == READ:
            _, offset, size = struct.unpack_from("=QQI", arg)
            return bytes(self.data[offset:min(offset + size, self.size)])
        if op == WRITE and self.control[0]:
            return self.control[0]
        if op == WRITE:
            _, offset, size = struct.unpack_from("=QQI", arg)
            self.data[offset:offset + size] = arg[40:40 + size]
            return struct.pack("=II", size, 0)
        if op == FSYNC:
            return self.sync_errnos.pop(0) if self.sync_errnos else b""
        if op in (GETLK, SETLK, SETLKW):
            return self.lock_errno or b""
        if op in (RELEASE, FLUSH, DESTROY):
            return b""
        if op == STATFS:
            return struct.pack("=QQQQQIIII24x", 1000, 0, 0, 2, 0, 4096, 255,
                               4096, 0)
        return errno.ENOSYS
