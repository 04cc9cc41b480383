# SPDX-License-Identifier: BSD-3-Clause
"""The modelled slow disk (scripts/slow-disk) as a place for the image.

It lives in a mount namespace of its own.  Servers are started inside, so that
they see the image under its plain path; we look in through /proc/PID/root.
"""

import json
import os
import select
import socket
import subprocess
import time

from . import host, servers
from .servers import Failed, Missing

IMAGE_SIZE = 128 << 20  # It lives in memory, and every round may touch it all.
_PATIENCE_S = 60
# Says where the disk is, then lives until we close its standard input, which
# also happens when we are killed.
_HOLD = 'printf "%s\\n" "$UBD_SLOW_DISK" "$UBD_SLOW_CONTROL"; exec cat'


class Settings:
    """How scripts/slow-disk is called."""

    def __init__(self, fs="file", flush_ms=8, also=(), cache="none"):
        self.fs, self.flush_ms, self.also = fs, flush_ms, also
        self.cache = cache

    def words(self):
        # The file system wants room for itself.
        size = IMAGE_SIZE * (1 if self.fs == "file" else 2)
        words = ["--fs", self.fs, "--flush-ms", str(self.flush_ms),
                 "--cache", self.cache, "--size", "%dM" % (size >> 20)]
        for setting in self.also:
            words += ["--set", setting]
        return words


class SlowDisk:
    """A running one, with an image on it.

    image, disk, namespace: as the class Bench wants them.
    """

    def __init__(self, source, folder, settings):
        self.image = self.namespace = None
        program = os.path.join(source, "scripts", "slow-disk")
        log = os.path.join(folder, "slow-disk.log")
        with open(log, "w", encoding="utf-8") as err:
            self._process = subprocess.Popen(
                [program, *settings.words(), "--", "sh", "-c", _HOLD],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=err,
                start_new_session=True)  # Our Ctrl-C is not its.
        try:
            where, control = self._read_places(log)
            self._enter(settings, where, control)
        except BaseException:
            self.close()
            raise

    def _read_places(self, log):
        said = b""
        give_up = time.monotonic() + _PATIENCE_S
        while said.count(b"\n") < 2:
            wait = max(0, give_up - time.monotonic())
            if not select.select([self._process.stdout], [], [], wait)[0]:
                raise Failed("slow-disk is not ready within %d s"
                             % _PATIENCE_S)
            more = os.read(self._process.stdout.fileno(), 4096)
            if not more:
                self._process.wait()
                why = servers.last_line(log)
                # "needs root", "needs /dev/fuse", "...: not built"
                missing = ": needs " in why or why.endswith("not built")
                raise (Missing if missing else Failed)(why)
            said += more
        return os.fsdecode(said).splitlines()

    def _enter(self, settings, where, control):
        inside = "/proc/%d/root" % self._process.pid
        self.disk = ModelDisk(inside + control, settings.flush_ms)
        self.namespace = os.open("/proc/%d/ns/mnt" % self._process.pid,
                                 os.O_RDONLY | os.O_CLOEXEC)
        if settings.fs == "file":
            self.image = host.Image(where, IMAGE_SIZE, inside, make=False)
        else:
            self.image = host.Image(os.path.join(where, "bench.img"),
                                    IMAGE_SIZE, inside)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        """The disk goes away with whatever is on it."""
        if self.image:
            self.image.close()
            self.image = None
        if self.namespace is not None:
            os.close(self.namespace)
            self.namespace = None
        process = self._process
        try:
            process.stdin.close()
        except OSError:
            pass
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


class ModelDisk:
    """What the model has completed; like host.Disk."""

    def __init__(self, control, flush_ms):
        self.name = "slow-disk, %g ms per flush" % flush_ms
        self.stats = [control]
        self.why_unknown = ""
        self.native_fua = False

    def read(self):
        with socket.socket(socket.AF_UNIX) as s:
            s.settimeout(_PATIENCE_S)
            s.connect(self.stats[0])
            s.sendall(b"stats\n")
            with s.makefile("r", encoding="utf-8") as answer:
                got = json.loads(answer.readline() or "{}")
        try:
            return [got["flushes_done"], got["writes"], got["write_bytes"]]
        except KeyError:
            raise Failed("the slow disk gives no counters") from None
