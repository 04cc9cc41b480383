# SPDX-License-Identifier: BSD-3-Clause
"""A place for an image whose disk nobody else flushes: ext4 on a loop device
of its own, mounted in a namespace of its own.
"""

import os
import select
import subprocess
import time

from benchlib import host, servers
from benchlib.servers import Failed, Missing

_PATIENCE_S = 60
OVERHEAD = 96 << 20  # ext4's own.
# The device is let go of at once, so that it vanishes with the mount, and the
# mount with the namespace.  Ends when our end of its standard input is closed.
_HOLD = r"""
set -e
loop=$(losetup --find --show --direct-io=on "$1")
trap 'losetup --detach "$loop"' EXIT
mkfs.ext4 -q -F -E lazy_itable_init=0,lazy_journal_init=0 "$loop"
mount -t ext4 -o noatime "$loop" "$2"
losetup --detach "$loop"
trap - EXIT
echo ready
exec cat
"""


class LoopDisk:
    """image, disk, namespace: as the class Bench wants them."""

    def __init__(self, place, folder, size):
        self.image = self.namespace = self._process = None
        if os.geteuid() != 0:
            raise Missing("needs root, for a loop device whose flushes are "
                          "counted")
        for program, package in (("losetup", "mount"),
                                 ("mkfs.ext4", "e2fsprogs")):
            servers.find_program(program, package)
        self._backing = os.path.join(place, "loop.img")
        self._mount = os.path.join(folder, "loop")
        os.makedirs(self._mount, exist_ok=True)
        log = os.path.join(folder, "loop.log")
        try:
            with open(self._backing, "wb") as f:
                os.posix_fallocate(f.fileno(), 0, size + OVERHEAD)
            with open(log, "w", encoding="utf-8") as err:
                self._process = subprocess.Popen(
                    ["unshare", "--mount", "--propagation", "private", "sh",
                     "-c", _HOLD, "sh", self._backing, self._mount],
                    stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
                    start_new_session=True)  # Our Ctrl-C is not its.
            self._wait_until_ready(log)
            inside = "/proc/%d/root" % self._process.pid
            self.namespace = os.open("/proc/%d/ns/mnt" % self._process.pid,
                                     os.O_RDONLY | os.O_CLOEXEC)
            self.disk = host.Disk(inside + self._mount)
            self.image = host.Image(os.path.join(self._mount, "seeds.img"),
                                    size, inside)
        except BaseException:
            self.close()
            raise

    def _wait_until_ready(self, log):
        if not select.select([self._process.stdout], [], [], _PATIENCE_S)[0]:
            raise Failed("no loop device within %d s" % _PATIENCE_S)
        if os.read(self._process.stdout.fileno(), 64) != b"ready\n":
            self._process.wait()
            raise Failed("no loop device: " + servers.last_line(log))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        if self.image:
            os.close(self.image.fd)  # The file goes with its file system.
            self.image = None
        if self.namespace is not None:
            os.close(self.namespace)
            self.namespace = None
        if self._process:
            self._process.stdin.close()
            try:
                self._process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
                self._process.wait()
            self._process.stdout.close()
            self._process = None
            self._wait_until_detached()
        if os.path.exists(self._backing):
            os.unlink(self._backing)

    def _wait_until_detached(self):
        """The kernel unmounts a moment after the namespace's last user."""
        give_up = time.monotonic() + _PATIENCE_S
        while True:
            left = subprocess.run(
                ["losetup", "--noheadings", "--output", "NAME",
                 "--associated", self._backing], check=False, text=True,
                stdout=subprocess.PIPE).stdout.split()
            if not left:
                return
            if time.monotonic() > give_up:
                raise Failed("%s is stuck" % left[0])
            time.sleep(0.01)
