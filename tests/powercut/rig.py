# SPDX-License-Identifier: BSD-3-Clause
"""The stacks under an image, on a disk whose power can be cut.

  file   the image is the model's file; FUSE has a page cache over it
  block  the image is a loop device over that file
  ext4, xfs   the image is a file of a file system on that loop device

A Pristine is what is made once: the disk with its file system and its image.
A Rig is one running disk, set back to the pristine one for each cut.  All of
it runs in a mount and PID namespace of its own (enter_namespace), with which
everything vanishes, whatever happens.
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time

KiB, MiB = 1024, 1024 * 1024
SKIP = 77
DIR = "/dev/shm"  # Covered by a tmpfs of our own in the namespace.
IN_NAMESPACE = "UBD_POWERCUT_IN_NAMESPACE"
PATIENCE_S = 300
IMAGE_SECTORS = 4096
MNT_DETACH = 2
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
MS_NOATIME = 1024
MS_REC, MS_PRIVATE = 1 << 14, 1 << 18
CLONE_NEWNS = 0x20000

LOOP_CTL_GET_FREE = 0x4C82
LOOP_CONFIGURE = 0x4C0A
LO_FLAGS_AUTOCLEAR = 4
LO_FLAGS_DIRECT_IO = 16

STACKS = ["ext4", "xfs", "block", "file"]
DISK_SIZE = {"file": IMAGE_SECTORS * 512, "block": IMAGE_SECTORS * 512,
             "ext4": 24 * MiB, "xfs": 32 * MiB}
MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F", "-J", "size=4", "-E",
             "lazy_itable_init=0,lazy_journal_init=0"],
    # The variables below make it accept a disk so small.
    "xfs": ["mkfs.xfs", "-q", "-f"],
}
MKFS_ENV = {"TEST_DIR": "1", "TEST_DEV": "1", "QA_CHECK_FS": "1"}
# No commit by the clock: nobody but the server asks for durability.
# Each of the disks that are up at the same time has the same UUID.
FS_OPTIONS = {"ext4": "commit=300", "xfs": "nouuid"}

libc = ctypes.CDLL(None, use_errno=True)


class Broken(Exception):
    """The rig does not work; nothing is known about the server."""


def skip(why):
    print("skipped:", why)
    sys.exit(SKIP)


def check_host(stacks, programs=()):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if os.geteuid() != 0:
        skip("needs root, for mounts and loop devices")
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            skip(f"needs {device}")
    makers = (MKFS[s][0] for s in stacks if s in MKFS)
    for name in ("nbdkit", "unshare", *makers, *programs):
        if not shutil.which(name):
            skip(f"needs {name}")


def mount(source, target, kind, flags=0, options=""):
    if libc.mount(source.encode(), target.encode(), kind.encode(),
                  ctypes.c_ulong(flags), options.encode()) != 0:
        e = ctypes.get_errno()
        raise OSError(e, f"mount {kind} at {target}: {os.strerror(e)}")


def umount(target):
    """The last writes of a killed server may hold it for a moment."""
    until = time.monotonic() + PATIENCE_S
    while libc.umount2(target.encode(), 0) != 0:
        e = ctypes.get_errno()
        if e != errno.EBUSY or time.monotonic() > until:
            raise OSError(e, f"umount {target}: {os.strerror(e)}")
        time.sleep(0.002)


def enter_namespace():
    """Run the program again in namespaces of its own, or return there."""
    if os.environ.pop(IN_NAMESPACE, None) is None:
        os.environ[IN_NAMESPACE] = "1"
        argv = ["unshare", "--mount", "--pid", "--fork", "--kill-child",
                "--mount-proc", "--propagation", "private", "--",
                sys.executable, *sys.argv]
        libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
        # unshare itself ignores SIGTERM while it waits (util-linux 2.38).
        child = subprocess.Popen(  # pylint: disable=consider-using-with
            argv, preexec_fn=lambda: libc.prctl(PR_SET_PDEATHSIG,
                                                signal.SIGKILL))

        def stop(number, _frame):
            # Not child.wait(): the one below has its lock.  What unshare has
            # started becomes ours, and has gone when it has been waited for.
            with contextlib.suppress(OSError):
                os.kill(child.pid, signal.SIGKILL)
                while True:
                    os.waitpid(-1, 0)
            os._exit(128 + number)

        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)
        sys.exit(child.wait())
    mount("powercut", DIR, "tmpfs", options="mode=700")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def own_mounts():
    """What this process mounts is nobody else's: a guest gets a copy of all
    mounts, and would keep other workers' file systems alive.
    """
    if libc.unshare(CLONE_NEWNS) != 0:
        raise Broken("unshare: " + os.strerror(ctypes.get_errno()))
    mount("none", "/", "none", MS_REC | MS_PRIVATE)


def run(*argv, **kw):
    p = subprocess.run(argv, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                       stdin=subprocess.DEVNULL, check=False, text=True, **kw)
    if p.returncode != 0:
        raise Broken(f"{argv[0]}: exit {p.returncode}: {p.stdout.strip()}")


def program(*path):
    build = os.environ.get("UBD_BUILD") or os.path.join(
        os.path.dirname(os.path.abspath(__file__)), "..", "..", "build")
    return os.path.join(os.path.abspath(build), *path)


def plugin(mutant=None):
    if mutant:
        return program("tests", "powercut", "nbdkit-ubd-mutant-plugin.so")
    return program("plugins", "nbdkit-ubd-plugin.so")


def powercut():
    return program("tests", "powercut", "powercut")


class Loop:
    """A loop device over @path that vanishes with its last user."""

    def __init__(self, path, direct=True):
        flags = LO_FLAGS_AUTOCLEAR | (LO_FLAGS_DIRECT_IO if direct else 0)
        self.path, self.fd, self.file = None, -1, path
        control = os.open("/dev/loop-control", os.O_RDWR | os.O_CLOEXEC)
        backing = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        config = struct.pack("=II 40x 12x I", backing, 512, flags)
        config = config.ljust(304, b"\0")
        until = time.monotonic() + PATIENCE_S
        try:
            while self.fd < 0:
                self.try_one(fcntl.ioctl(control, LOOP_CTL_GET_FREE), config)
                if time.monotonic() > until:
                    raise Broken("no free loop device")
        finally:
            os.close(backing)
            os.close(control)

    def try_one(self, number, config):
        """Somebody else may take that one first."""
        path = f"/dev/loop{number}"
        try:
            fd = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        except OSError as e:
            if e.errno not in (errno.ENOENT, errno.ENXIO, errno.EBUSY):
                raise
            time.sleep(0.002)
            return
        try:
            fcntl.ioctl(fd, LOOP_CONFIGURE, config)
        except OSError as e:
            os.close(fd)
            if e.errno != errno.EBUSY:
                raise
            return
        self.path, self.fd = path, fd

    def close(self):
        """Returns when it has gone: whoever still had it, or a file system on
        it, could write to a disk whose power is on again.
        """
        if self.fd < 0:
            return
        os.close(self.fd)
        self.fd = -1
        name = os.path.basename(self.path)
        until = time.monotonic() + PATIENCE_S
        while self.is_ours(f"/sys/block/{name}/loop/backing_file"):
            if time.monotonic() > until:
                raise Broken(f"{self.path} is still in use")
            time.sleep(0.001)

    def is_ours(self, path):
        """Somebody else may have taken it meanwhile."""
        try:
            with open(path, encoding="utf-8") as f:
                return f.read().strip() == self.file
        except OSError:
            return False


class Model:
    """A running disk model and its control socket."""

    def __init__(self, folder, durable, cache):
        self.mountpoint = os.path.join(folder, "fuse")
        self.file = os.path.join(self.mountpoint, "disk")
        self.socket = os.path.join(folder, "ctl")
        os.makedirs(self.mountpoint, exist_ok=True)
        self.process = subprocess.Popen(
            [program("tests", "diskmodel", "diskmodel"), self.mountpoint,
             f"file={durable}", f"control={self.socket}", f"cache={cache}",
             "cache_mb=0", "exit-with-parent=1"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
        if self.process.stdout.readline() != "ready\n":
            raise Broken("the disk model did not start")
        # A file system on this disk is not mounted where the model lives: if it
        # is killed and the last one there, Linux 6.18 has it unmount that, and
        # wait for ever for itself, before it closes its end of FUSE.
        own_mounts()
        self.control = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.control.connect(self.socket)
        self.answers = self.control.makefile("r")

    def ask(self, command):
        self.control.sendall(command.encode() + b"\n")
        line = self.answers.readline()
        if not line:
            raise Broken("the disk model has gone")
        answer = json.loads(line)
        if "error" in answer:
            raise Broken(f"disk model: {command}: {answer['error']}")
        return answer

    def stop(self):
        self.answers.close()
        self.control.close()
        libc.umount2(self.mountpoint.encode(), MNT_DETACH)
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


class Mounted:
    """What the host sees of the disk when it has booted; .image is there."""

    def __init__(self, stack, folder, file, image, direct=True, options=""):
        self.loop, self.mountpoint = None, None
        self.image = file
        if stack == "file":
            return
        self.loop = Loop(file, direct)
        self.image = self.loop.path
        if stack == "block":
            return
        mountpoint = os.path.join(folder, "fs")
        os.makedirs(mountpoint, exist_ok=True)
        self.image = os.path.join(mountpoint, image)
        try:
            mount(self.loop.path, mountpoint, stack, MS_NOATIME,
                  ",".join(o for o in (FS_OPTIONS[stack], options) if o))
            self.mountpoint = mountpoint
        finally:
            if not self.mountpoint:
                self.loop.close()

    def close(self):
        if self.mountpoint:
            umount(self.mountpoint)
        elif not self.loop:
            drop_cache(self.image)
        if self.loop:
            self.loop.close()


def drop_cache(path):
    """What the host had in memory is gone with the power."""
    fd = os.open(path, os.O_RDWR)
    try:
        for _ in range(2):  # Once for each error that is to be told.
            try:
                os.fsync(fd)
            except OSError:
                pass
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(fd)


class Pristine:
    """The bytes of a disk as every load finds it."""

    IMAGES = {"data.img": False, "hole.img": True}  # Are they holes?

    def __init__(self, stack, size=None):
        self.stack = stack
        self.size = size or DISK_SIZE[stack]
        path = os.path.join(DIR, f"pristine-{stack}")
        with open(path, "wb") as f:
            f.truncate(self.size)
        if stack in MKFS:
            run(*MKFS[stack], path, env={**os.environ, **MKFS_ENV})
        at = Mounted(stack, DIR, path, "", direct=False)
        try:
            if stack in MKFS:
                self.make_images(at.image)
            else:
                self.fill(at.image)
        finally:
            at.close()
        self.extents = list(read_extents(path))
        os.unlink(path)

    def make_images(self, folder):
        for name in self.IMAGES:
            with open(os.path.join(folder, name), "wb") as f:
                f.truncate(IMAGE_SECTORS * 512)
        self.fill(os.path.join(folder, "data.img"))

    @staticmethod
    def fill(path):
        run(powercut(), "fill", path, f"sectors={IMAGE_SECTORS}")

    def write(self, path):
        """Make @path that disk; whoever has mapped it sees it at once."""
        with open(path, "r+b", buffering=0) as f:
            f.truncate(0)
            f.truncate(self.size)
            for offset, data in self.extents:
                os.pwrite(f.fileno(), data, offset)


def read_extents(path):
    """(offset, bytes) of what is not zero, in pages."""
    page, zero = 4096, bytes(4096)
    with open(path, "rb") as f:
        data = f.read()
    start = None
    for at in range(0, len(data) + page, page):
        is_data = data[at:at + page] not in (b"", zero)
        if is_data and start is None:
            start = at
        elif not is_data and start is not None:
            yield start, data[start:at]
            start = None


class Rig:
    """One disk with its power off; each cut begins and ends so."""

    def __init__(self, pristine, name):
        self.pristine = pristine
        self.stack = pristine.stack
        self.folder = os.path.join(DIR, name)
        self.durable = os.path.join(self.folder, "durable")
        self.mounted = None
        os.makedirs(self.folder, exist_ok=True)
        with open(self.durable, "wb") as f:
            f.truncate(pristine.size)
        cache = "writeback" if self.stack == "file" else "none"
        self.model = Model(self.folder, self.durable, cache)
        self.model.ask("cut mode=none")

    def boot(self, image, options="", restore=False):
        """Power on; @restore: on the disk as every load finds it."""
        if restore:
            self.pristine.write(self.durable)
        self.model.ask("power-on")
        self.mounted = Mounted(self.stack, self.folder, self.model.file, image,
                               options=options)
        return self.mounted.image

    def down(self):
        """The host goes; the power is off already, or goes now."""
        if self.mounted:
            self.mounted.close()
        self.mounted = None
        if self.model.ask("stats")["power"] == "on":
            self.model.ask("cut mode=none")

    def heal(self):
        """Fast and without failures."""
        self.model.ask("set flush_ms=0 flush_delay_ms=0 write_delay_ms=0")
        self.model.ask("fail")

    def stop(self):
        if self.mounted:
            self.mounted.close()
        self.model.stop()


class Server:
    """nbdkit with the plugin; dies with us."""

    def __init__(self, folder, image, options, mutant=None):
        env = {k: v for k, v in os.environ.items() if k != "UBD_MUTANT"}
        if mutant:
            env["UBD_MUTANT"] = mutant
        self.socket = os.path.join(folder, "nbd")
        self.log_path = os.path.join(folder, "log")
        if os.path.exists(self.socket):
            os.unlink(self.socket)
        with open(self.log_path, "w", encoding="utf-8") as log:
            self.process = subprocess.Popen(
                ["nbdkit", "-f", "-U", self.socket, "--exit-with-parent",
                 plugin(mutant), f"file={image}", *options],
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                stderr=log, env=env)

    def wait_until_it_listens(self):
        until = time.monotonic() + PATIENCE_S
        while not os.path.exists(self.socket):
            if self.process.poll() is not None or time.monotonic() > until:
                raise Broken("the server did not start: " + self.log())
            time.sleep(0.002)

    def log(self):
        with open(self.log_path, encoding="utf-8", errors="replace") as f:
            return f.read().strip()

    def kill(self):
        self.process.kill()
        self.process.wait()


class Client:
    """The load, and afterwards the check; see main.c."""

    def __init__(self, options):
        self.process = subprocess.Popen(
            [powercut(), "load", *(f"{k}={v}" for k, v in options.items())],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True)

    def answer(self):
        line = self.process.stdout.readline()
        if not line:
            raise Broken(self.process.communicate()[1].strip() or
                         "the client has gone")
        return json.loads(line)

    def check(self, path):
        self.process.stdin.write(path + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self):
        """What it had to say about losses."""
        out = self.process.communicate()[1]
        return out.strip()

    def kill(self):
        self.process.kill()
        self.process.communicate()
