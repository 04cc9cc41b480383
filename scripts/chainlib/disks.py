# SPDX-License-Identifier: BSD-3-Clause
"""The disk under a file, and private disks.

Everything mounted here is mounted in a mount namespace of our own: it is gone
when we are, however we end, and so is the loop device, which is told to detach
at its last close.
"""

import ctypes
import os
import stat
import subprocess

from . import Failed

_CLONE_NEWNS = 0x20000
_MS_REC, _MS_PRIVATE = 0x4000, 0x40000
_libc = ctypes.CDLL(None, use_errno=True)


def enter_namespace():
    """From here on our mounts are ours alone."""
    if (_libc.unshare(_CLONE_NEWNS) != 0 or
            _libc.mount(b"none", b"/", None, _MS_REC | _MS_PRIVATE, None) != 0):
        raise Failed("cannot make a mount namespace: %s"
                     % os.strerror(ctypes.get_errno()))


def mount(kind, source, target):
    os.makedirs(target, exist_ok=True)
    if _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode(),
                   0, None) != 0:
        raise Failed("cannot mount %s: %s"
                     % (kind, os.strerror(ctypes.get_errno())))


def unmount(target):
    _libc.umount2(os.fsencode(target), 2)  # MNT_DETACH: also while in use.


def _run(*argv):
    try:
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, text=True,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              check=False)
    except FileNotFoundError:
        raise Failed("%s is not installed" % argv[0]) from None
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise Failed("%s: %s" % (argv[0], lines[-1] if lines else
                                 "status %d" % done.returncode))
    return done.stdout.strip()


class Disk:
    """A disk as the kernel's block events name it."""

    def __init__(self, name):
        self.name = name
        self.major, self.minor = map(int, _read(
            "/sys/block/%s/dev" % name.replace("/", "!")).split(":"))

    @property
    def number(self):
        """dev_t inside the kernel."""
        return self.major << 20 | self.minor

    @property
    def has_volatile_cache(self):
        return _read("/sys/block/%s/queue/write_cache"
                     % self.name) == "write back"


def _read(path):
    try:
        with open(path, encoding="ascii") as f:
            return f.read().strip()
    except OSError as e:
        raise Failed("cannot read %s: %s" % (path, e.strerror)) from None


def _whole_disks(folder):
    """The disks that a block device's sysfs folder comes down to."""
    folder = os.path.realpath(folder)
    if os.path.exists(os.path.join(folder, "partition")):
        folder = os.path.dirname(folder)
    slaves = os.path.join(folder, "slaves")
    below = os.listdir(slaves) if os.path.isdir(slaves) else []
    if not below:
        return [os.path.basename(folder)]
    found = []
    for name in sorted(below):
        found += _whole_disks(os.path.join(slaves, name))
    return found


def disks_under(path):
    """The Disks that hold @path, a file or a block device."""
    st = os.stat(path)
    device = st.st_rdev if stat.S_ISBLK(st.st_mode) else st.st_dev
    if os.major(device) == 0:  # Btrfs and the like: ask for the source.
        source = _find_mount(path, "SOURCE").split("[")[0]
        try:
            device = os.stat(source).st_rdev
        except OSError:
            device = 0
    folder = "/sys/dev/block/%d:%d" % (os.major(device), os.minor(device))
    if not os.path.exists(folder):
        raise Failed("no disk is under '%s' (%s): its flushes cannot be seen;"
                     " expected a file on a disk, or --private-disk"
                     % (path, filesystem_of(path)))
    return [Disk(name) for name in dict.fromkeys(_whole_disks(folder))]


def filesystem_of(path):
    if stat.S_ISBLK(os.stat(path).st_mode):
        return "block device"
    return _find_mount(path, "FSTYPE")


def _find_mount(path, column):
    """Of several mounts at one place the last one is seen."""
    return _run("findmnt", "-no", column, "-T", path).splitlines()[-1]


class PrivateDisk:
    """A file system on a loop device of its own, with a sparse image on it.

    Nobody else uses this disk, so that each of its flushes has a reason that
    we can name.
    """

    KINDS = ("ext4", "xfs")

    def __init__(self, folder, kind, image_size):
        # The image may be full, and the file system wants room for itself.
        size = image_size + image_size // 8 + (384 << 20)
        backing = os.path.join(folder, "private-disk")
        with open(backing, "wb") as f:
            f.truncate(size)
        self.device = _run("losetup", "-f", "--show", backing)
        self._fd = os.open(self.device, os.O_RDONLY | os.O_CLOEXEC)
        # Of a device that is open, this means: at its last close.
        _run("losetup", "-d", self.device)
        os.unlink(backing)
        quiet = {"ext4": ["-q", "-E", "lazy_itable_init=0,"
                          "lazy_journal_init=0,nodiscard"],
                 "xfs": ["-q", "-K"]}
        _run("mkfs." + kind, *quiet[kind], self.device)
        self.folder = os.path.join(folder, "mnt")
        mount(kind, self.device, self.folder)
        self.image = os.path.join(self.folder, "disk.img")
        with open(self.image, "wb") as f:
            f.truncate(image_size)

    def close(self):
        unmount(self.folder)
        os.close(self._fd)
