# SPDX-License-Identifier: BSD-3-Clause
"""The kernel of the qemu guest, unpacked, and its first root file system.

Unpacking the kernel inside of qemu costs seconds, so it is done here, once;
both files are kept in build/guest/.
"""

import glob
import gzip
import lzma
import os
import re
import shutil
import stat
import struct
import subprocess
import zlib

from . import servers

# Until the host's files are there; all others are loaded from those.
MODULES = ("virtio_pci", "virtio_console", "9pnet_virtio", "9p")

# All of its work is to find the host's files; the rest is in inside.py.
INIT = r"""#!/bin/busybox sh
B=/bin/busybox
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
$B mount -t devtmpfs dev /dev
for ko in %s; do $B insmod "/ko/$ko"; done
$B mount -t 9p -o trans=virtio,version=9p2000.L,ro,cache=loose,msize=262144 \
    host /host || { echo "cannot see the host's files"; $B poweroff -f; }
$B ln -s /host/usr/lib/modules /lib/modules
run=$($B sed 's/.*ubd\.run=\([^ ]*\).*/\1/' /proc/cmdline)
RUN_HERE=/host$run
. "$RUN_HERE/settings"
. "$RUN_HERE/init"
"""


def newest_kernel():
    """(version, path) of an installed kernel that has its modules."""
    def key(path):
        return [int(n) for n in re.findall(r"\d+", os.path.basename(path))]
    for path in sorted(glob.glob("/boot/vmlinuz-*"), key=key, reverse=True):
        version = os.path.basename(path)[len("vmlinuz-"):]
        if os.path.isdir("/lib/modules/" + version) and \
           os.access(path, os.R_OK):
            return version, path
    raise servers.NotStarted(
        "no kernel for qemu: expected a readable /boot/vmlinuz-VERSION with "
        "/lib/modules/VERSION (Debian: linux-image-amd64)")


def unpack_kernel(path):
    """The ELF file in a bzImage; see Documentation/x86/boot.rst."""
    with open(path, "rb") as f:
        data = f.read()
    if data[0x202:0x206] != b"HdrS":
        raise servers.NotStarted("%s is no bzImage" % path)
    setup_sectors = data[0x1f1] or 4
    offset, length = struct.unpack_from("<II", data, 0x248)
    start = (setup_sectors + 1) * 512 + offset
    payload = data[start:start + length]
    if payload.startswith(b"\xfd7zXZ"):
        return lzma.LZMADecompressor(lzma.FORMAT_XZ).decompress(payload)
    if payload.startswith(b"\x1f\x8b"):
        return zlib.decompressobj(31).decompress(payload)
    if payload.startswith(b"\x28\xb5\x2f\xfd") and shutil.which("zstd"):
        # The kernel's length follows the frame; zstd complains of that.
        return subprocess.run(["zstd", "-dcq"], input=payload[:-4],
                              stdout=subprocess.PIPE, check=True).stdout
    return None  # qemu can boot the packed one, only slower.


def modules_for(version):
    """Files to insert, in their order."""
    files = []
    for name in MODULES:
        done = subprocess.run(
            ["modprobe", "-S", version, "--show-depends", name], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
        if done.returncode != 0:
            raise servers.NotStarted("the kernel %s has no module %s" %
                                     (version, name))
        for line in done.stdout.splitlines():
            words = line.split()
            if words[0] == "insmod" and words[1] not in files:
                files.append(words[1])
    return files


class Archive:
    """A cpio archive as the kernel reads it ("newc")."""

    def __init__(self):
        self.data = bytearray()
        self.number = 0

    def add(self, name, mode, content=b""):
        self.number += 1
        fields = (self.number, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0,
                  len(name) + 1, 0)
        self.data += b"070701" + b"".join(b"%08x" % f for f in fields)
        self.data += name.encode() + b"\0"
        self.pad()
        self.data += content
        self.pad()

    def pad(self):
        self.data += bytes(-len(self.data) % 4)

    def file(self, name, source):
        with open(source, "rb") as f:
            self.add(name, stat.S_IFREG | 0o755, f.read())

    def finish(self):
        self.add("TRAILER!!!", 0)
        return bytes(self.data)


def make_archive(version):
    a = Archive()
    for name in ("bin", "sbin", "lib", "dev", "proc", "sys", "host", "new",
                 "ko"):
        a.add(name, stat.S_IFDIR | 0o755)
    a.file("bin/busybox", shutil.which("busybox"))
    # The kernel calls it for a file system that it does not have yet.
    a.add("sbin/modprobe", stat.S_IFLNK | 0o777, b"/bin/busybox")
    names = []
    for path in modules_for(version):
        names.append(os.path.basename(path))
        a.file("ko/" + names[-1], path)
    a.add("init", stat.S_IFREG | 0o755, (INIT % " ".join(names)).encode())
    return gzip.compress(a.finish(), 1)


def write_whole(path, data):
    """Also when two runs do it at once: nobody sees half of a file."""
    temporary = "%s.%s" % (path, os.urandom(4).hex())
    with open(temporary, "wb") as f:
        f.write(data)
    os.rename(temporary, path)


def cached(folder, name, sources, make):
    """@make's result in a file that is newer than all of @sources."""
    path = os.path.join(folder, name)
    newest = max(os.stat(s).st_mtime for s in sources)
    if not os.path.exists(path) or os.stat(path).st_mtime <= newest:
        data = make()
        if data is None:
            return sources[0]
        write_whole(path, data)
    return path


def prepare(o, run_folder):
    """Paths of the kernel and the initramfs."""
    version, packed = newest_kernel()
    folder = os.path.join(o.build, "guest")
    try:
        os.makedirs(folder, exist_ok=True)
        writable = os.access(folder, os.W_OK)
    except OSError:
        writable = False
    if not writable:  # Someone else's clone: then for this run only.
        folder = run_folder
    kernel = cached(folder, "vmlinux-" + version, [packed],
                    lambda: unpack_kernel(packed))
    first_root = cached(
        folder, "initramfs-" + version,
        [packed, os.path.realpath(__file__), shutil.which("busybox"),
         "/lib/modules/%s/modules.dep" % version],
        lambda: make_archive(version))
    return kernel, first_root
