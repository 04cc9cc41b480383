# SPDX-License-Identifier: BSD-3-Clause
#
# What the tests in this folder share: a private mount namespace, loop devices
# that cannot outlive the test, hosts that lose data, a served disk, and a way
# to have many NBD requests in flight from one thread.
#
# Nothing is left behind, also after SIGKILL: mounts belong to the namespace,
# files to a tmpfs in it, a loop device is marked to detach at its last close
# and only this process, its server and its mounts have it open.

import ctypes
import contextlib
import fcntl
import os
import re
import select
import shutil
import signal
import socket
import struct
import subprocess
import sys
import tempfile
import threading
import traceback

KiB, MiB = 1024, 1024 * 1024
SKIP = 77
MNT_DETACH = 2
DEADLINE = 110  # Seconds; below the 120 after which meson kills.
# As in ubdtest.py.
TIMES = float(os.environ.get("UBD_TIMEOUT_MULTIPLIER", "1"))
libc = ctypes.CDLL(None, use_errno=True)


def skip(reason):
    print("SKIP:", reason)
    sys.exit(SKIP)


try:
    import nbd
except ImportError:
    skip("no nbd module for this Python (Debian: python3-libnbd)")


def need(*programs):
    """Skip unless all of @programs are installed."""
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    for p in programs:
        if shutil.which(p) is None:
            skip(p + " is not installed")


def run(*argv, **kw):
    """Run a program; its output is shown only if it fails."""
    kw.setdefault("stdout", subprocess.PIPE)
    kw.setdefault("stderr", subprocess.STDOUT)
    kw.setdefault("stdin", subprocess.DEVNULL)
    p = subprocess.run([str(a) for a in argv], text=True, **kw)
    if p.returncode != 0:
        raise AssertionError("%s: exit %d\n%s" %
                             (" ".join(map(str, argv)), p.returncode, p.stdout))
    return p.stdout


def pattern(tag, length):
    """@length bytes which no other @tag produces, and no zero byte."""
    unit = b"".join(struct.pack("<II", (tag * 2654435761 + i * 40503) &
                                0xffffffff | 0x01010101, tag | 0x01010101)
                    for i in range(64))
    return (unit * (length // len(unit) + 1))[:length]


class Loop:
    """A loop device over @file; detaches when its last user is gone."""

    def __init__(self, t, file, sector=512, direct_io=False):
        argv = ["losetup", "-f", "--show", "--sector-size", sector]
        if direct_io:
            argv.append("--direct-io=on")
        self.file = file
        self.dev = run(*argv, file).strip()
        self.fd = os.open(self.dev, os.O_RDONLY | os.O_CLOEXEC)
        t.cleanup.callback(os.close, self.fd)
        # Detaching a device that is open means: at its last close.
        run("losetup", "-d", self.dev)
        if direct_io:
            name = os.path.basename(self.dev)
            with open("/sys/block/%s/loop/dio" % name) as f:
                if f.read().strip() != "1":
                    skip("no direct I/O for a loop device over " + file)

    def flushes(self):
        """Flushes that this disk has completed (field 16 of stat)."""
        name = os.path.basename(self.dev)
        with open("/sys/block/%s/stat" % name) as f:
            return int(f.read().split()[15])


class Server:
    """nbdkit with the plugin on a Unix socket.

    The socket is made here and handed over (socket activation), so that a
    client may connect at once: it is never necessary to poll for readiness.
    """

    def __init__(self, t, file, *args, nbdkit=()):
        self.t = t
        t.serial += 1
        base = os.path.join(t.dir, "server%d" % t.serial)
        self.socket = base + ".sock"
        self.uri = "nbd+unix:///?socket=" + self.socket
        self.log = base + ".log"
        self.metrics_file = base + ".prom"
        self.handles = []
        self.greeting = None  # What it printed until it accepted a client.
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(self.socket)
        listener.listen(1024)
        argv = ["nbdkit", "--exit-with-parent", *nbdkit, t.plugin,
                "file=" + file, "metrics=" + self.metrics_file, *args]
        with open(self.log, "wb") as log:
            self.proc = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                close_fds=False,  # The listener is one of them.
                preexec_fn=lambda: activate(listener.fileno()))
        listener.close()
        t.servers.append(self)
        t.cleanup.callback(self.kill)

    def connect(self):
        h = nbd.NBD()
        h.set_strict_mode(0)
        try:
            h.connect_unix(self.socket)
        except nbd.Error as e:
            raise AssertionError("connect: %s\n%s" % (e, self.messages()))
        if self.greeting is None:
            self.greeting = self.messages()
        self.handles.append(h)
        return h

    def messages(self):
        with open(self.log, errors="replace") as f:
            return f.read()

    def news(self):
        """What it printed after it had started."""
        return self.messages()[len(self.greeting):]

    def kill(self):
        if self.proc.poll() is None:
            self.proc.kill()
            self.proc.wait()

    def stop(self):
        """End the server politely; it must exit 0."""
        for h in self.handles:
            with contextlib.suppress(nbd.Error):
                h.shutdown()
        self.handles.clear()
        self.proc.send_signal(signal.SIGTERM)
        rc = self.proc.wait()
        assert rc == 0, "server: exit %d\n%s" % (rc, self.messages())

    def metric(self, name):
        """A counter from the file that the stopped server left."""
        assert self.proc.poll() is not None
        with open(self.metrics_file) as f:
            text = f.read()
        for line in text.splitlines():
            key, _, value = line.rpartition(" ")
            if key == name:
                return float(value)
        raise AssertionError("no metric %s in:\n%s" % (name, text))

    def expect_metric(self, name, want):
        got = self.metric(name)
        assert got == want, "%s is %g, not %g; the server said:\n%s" % (
            name, got, want, self.messages())


def activate(fd):
    """In the child: what systemd does for socket activation."""
    if fd == 3:
        os.set_inheritable(3, True)
    else:
        os.dup2(fd, 3, inheritable=True)
    os.environ["LISTEN_FDS"] = "1"
    os.environ["LISTEN_PID"] = str(os.getpid())


class Test:
    def __init__(self, cleanup):
        self.cleanup = cleanup
        self.serial = 0
        self.servers = []
        self.is_ending = False
        self.plugin = os.environ["UBD_PLUGIN"]

    def path(self, name):
        return os.path.join(self.dir, name)

    def sparse(self, name, size):
        path = os.path.join(self.data, name)
        with open(path, "wb") as f:
            f.truncate(size)
        return path

    def loop(self, file, **kw):
        return Loop(self, file, **kw)

    def server(self, file, *args, **kw):
        return Server(self, file, *args, **kw)

    def mount(self, kind, source, options="", name=None):
        self.serial += 1
        where = self.path(name or "mnt%d" % self.serial)
        os.mkdir(where)
        argv = ["mount", "-t", kind]
        if options:
            argv += ["-o", options]
        run(*argv, source, where)
        self.cleanup.callback(libc.umount2, where.encode(), MNT_DETACH)
        return where

    def tmpfs(self, size):
        return self.mount("tmpfs", "none", "size=%d" % size)

    def filesystem(self, kind, size, sector=512):
        """A new file system on a loop device; returns its folder.

        The loop device is in self.disk, so that a test can count its flushes.
        """
        if kind in ("tmpfs", "ramfs"):
            return self.mount(kind, "none", kind == "tmpfs" and
                              "size=%d" % size or "")
        self.serial += 1
        self.disk = self.loop(self.sparse("disk%d" % self.serial, size),
                              sector=sector, direct_io=True)
        make_filesystem(kind, self.disk.dev, sector)
        return self.mount(kind, self.disk.dev)


def sync_filesystem(path):
    """All of the file system of @path, and nothing of other tests' hosts,
    whose flushes they count.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        if libc.syncfs(fd) != 0:
            raise OSError(ctypes.get_errno(), path)
    finally:
        os.close(fd)


def make_filesystem(kind, dev, sector=512):
    argv = {"ext4": ["mkfs.ext4", "-q", "-b", "4096"],
            "xfs": ["mkfs.xfs", "-q", "-s", "size=%d" % sector],
            "btrfs": ["mkfs.btrfs", "-q"]}[kind]
    need(argv[0])
    with open("/proc/filesystems") as f:
        if kind not in f.read().split():
            skip("this kernel has no " + kind)
    # Keep mkfs from discarding: the space stays allocated if it was.
    run(*argv, {"ext4": "-Enodiscard"}.get(kind, "-K"), dev)


# A host that loses data.
#
# The disk is a loop device over a file on a tmpfs.  The blocks under the
# image are taken out of that file, from byte @healthy of the image to byte
# @healthy_again, and the tmpfs is then shrunk to what is in use: writes to that
# range reach the page cache, are acknowledged, and fail at writeback.
# Everything else on the disk (journal, inodes) has its space and stays healthy.
class LossyHost:
    IMAGE = 16 * MiB

    def __init__(self, t, kind, healthy=1 * MiB, healthy_again=IMAGE):
        self.healthy = healthy
        self.tmpfs = t.tmpfs(512 * MiB)
        backing = os.path.join(self.tmpfs, "disk")
        disk_size = self.IMAGE if kind == "block" else 320 * MiB
        with open(backing, "wb") as f:
            os.posix_fallocate(f.fileno(), 0, disk_size)
        self.loop = t.loop(backing)
        if kind == "block":
            self.image = self.loop.dev
            extents = [(0, 0, self.IMAGE)]
        else:
            make_filesystem(kind, self.loop.dev)
            where = t.mount(kind, self.loop.dev)
            self.image = os.path.join(where, "disk.img")
            # Written, not only allocated: an overwrite needs no metadata.
            with open(self.image, "wb") as f:
                f.write(b"\1" * self.IMAGE)
                os.fsync(f.fileno())
            sync_filesystem(where)
            extents = physical_extents(self.image)
        with open(backing, "r+b") as f:
            for logical, physical, length in extents:
                # A page of the tmpfs goes as a whole or not at all.
                assert physical % 4096 == length % 4096 == 0
                keep = min(max(self.healthy - logical, 0), length)
                end = min(max(healthy_again - logical, 0), length)
                if end > keep:
                    punch(f.fileno(), physical + keep, end - keep)
        self.shrink()

    def shrink(self):
        """No space for any new page of the disk."""
        st = os.statvfs(self.tmpfs)
        used = (st.f_blocks - st.f_bfree) * st.f_frsize
        run("mount", "-o", "remount,size=%d" % used, self.tmpfs)

    def grow(self):
        """Make room: the host is healthy again."""
        run("mount", "-o", "remount,size=%d" % (1024 * MiB), self.tmpfs)


def write_back_rest(path):
    """What a server that has given up left in the cache, so that the next one
    does not meet it; the kernel tells of each failure once.
    """
    with open(path, "r+b") as f, contextlib.suppress(OSError):
        os.fdatasync(f.fileno())


def punch(fd, offset, length):
    keep_size, punch_hole = 1, 2
    if libc.fallocate(fd, keep_size | punch_hole, ctypes.c_long(offset),
                      ctypes.c_long(length)) != 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))


def physical_extents(path):
    """[(logical, physical, length)] in bytes, by FIEMAP."""
    nr = 512
    buf = bytearray(struct.pack("=QQIIII", 0, 1 << 62, 1, 0, nr, 0) +
                    bytes(nr * 56))
    with open(path, "rb") as f:
        fcntl.ioctl(f.fileno(), 0xC020660B, buf)  # FS_IOC_FIEMAP
    mapped = struct.unpack_from("=QQIIII", buf)[3]
    assert 0 < mapped < nr
    return [struct.unpack_from("=QQQ", buf, 32 + i * 56)
            for i in range(mapped)]


# NBD requests

def error_of(call, *args):
    """The name of the error of an NBD request, or None if it succeeded."""
    try:
        call(*args)
    except nbd.Error as e:
        return e.errno or "unknown"
    return None


class Pump:
    """Many requests on many connections at once, from one thread.

    Requests are numbered by events: the order in which they were issued and
    in which their replies were seen is exact, as there is no second thread.
    """

    def __init__(self, handles):
        self.handles = handles
        self.pending = []  # (handle, cookie, tag)
        self.event = 0

    def issue(self, handle, cookie, tag=None):
        self.pending.append((handle, cookie, tag))

    def next_event(self):
        self.event += 1
        return self.event

    def reap(self):
        """Wait until some have completed: [(tag, error name or None)]."""
        while self.pending:
            done, left = [], []
            for h, cookie, tag in self.pending:
                try:
                    if h.aio_command_completed(cookie):
                        done.append((tag, None))
                    else:
                        left.append((h, cookie, tag))
                except nbd.Error as e:
                    done.append((tag, e.errno or "unknown"))
            self.pending = left
            if done:
                return done
            self.poll()
        return []

    def drain(self):
        out = []
        while self.pending:
            out += self.reap()
        return out

    def poll(self):
        poll, by_fd = select.poll(), {}
        for h in {h for h, _, _ in self.pending}:
            want = h.aio_get_direction()
            fd = h.aio_get_fd()
            by_fd[fd] = h
            poll.register(fd, (select.POLLIN if want & 1 else 0) |
                          (select.POLLOUT if want & 2 else 0))
        for fd, seen in poll.poll():
            h = by_fd[fd]
            want = h.aio_get_direction()
            if seen & (select.POLLIN | select.POLLHUP | select.POLLERR) and \
               want & 1:
                h.aio_notify_read()
            elif seen & select.POLLOUT and want & 2:
                h.aio_notify_write()


# Start and end of a test

def enter_namespace():
    clone_newns = 0x20000
    if libc.unshare(clone_newns) != 0:
        skip("no private mount namespace: " + os.strerror(ctypes.get_errno()))
    run("mount", "--make-rprivate", "/")


class Ended(BaseException):
    """A signal came."""


def end_on_signals(t):
    """Undo everything also after a signal, and before meson kills us.

    A handler runs when Python gets control back, which it does not while
    libnbd waits for a reply that never comes: a thread hears of the signal
    too, and kills the servers, which ends every such wait.
    """
    r, w = os.pipe()
    os.set_blocking(w, False)
    signal.set_wakeup_fd(w, warn_on_full_buffer=False)

    def listen():
        os.read(r, 1)
        for s in t.servers:
            s.proc.kill()

    def on_signal(number, frame):
        if number == signal.SIGALRM:
            print("The test took too long; it was here:", file=sys.stderr)
            traceback.print_stack(frame)
        if not t.is_ending:  # Never twice, never while undoing.
            t.is_ending = True
            raise Ended("signal %d" % number)

    threading.Thread(target=listen, daemon=True).start()
    for s in signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGALRM:
        signal.signal(s, on_signal)
    signal.alarm(int(DEADLINE * TIMES))


def prepare(t, root):
    t.dir = t.data = tempfile.mkdtemp(prefix="ubd-root-")
    t.cleanup.callback(shutil.rmtree, t.dir, ignore_errors=True)
    if root:
        run("mount", "-t", "tmpfs", "none", t.dir)
        t.cleanup.callback(libc.umount2, t.dir.encode(), MNT_DETACH)
        if not loop_works(t):
            skip("loop devices cannot be attached here")
    else:
        # Images go where the build is: /tmp may be unable to do O_DIRECT.
        t.data = tempfile.mkdtemp(prefix="ubd-tools-",
                                  dir=os.environ["UBD_BUILD"])
        t.cleanup.callback(shutil.rmtree, t.data, ignore_errors=True)


def main(body, root=True):
    need("nbdkit")
    if root:
        if os.geteuid() != 0:
            skip("needs root")
        need("losetup", "mount", "umount")
        if not os.path.exists("/dev/loop-control"):
            skip("no loop devices")
        enter_namespace()
    t = Test(contextlib.ExitStack())
    try:
        try:
            end_on_signals(t)
            prepare(t, root)
            body(t)
        finally:  # A signal may come here as well; hence two of them.
            t.is_ending = True
    finally:
        t.cleanup.close()


def loop_works(t):
    try:
        t.loop(t.sparse("probe", MiB))
    except AssertionError as e:
        print(e)
        return False
    return True


def log_lines(text, regex):
    return [l for l in text.splitlines() if re.search(regex, l, re.I)]


__all__ = [n for n in dir() if not n.startswith("_")]
