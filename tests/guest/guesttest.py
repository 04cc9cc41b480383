# SPDX-License-Identifier: BSD-3-Clause
#
# What the tests of whole guests share: the served disk of tests/root, and a
# guest that is started with scripts/guest, listened to and killed.
#
#   guest = Guest(t, "uml", "--disk", image, run="sync; echo done")
#   for line in guest.lines(): ...    # As the guest prints them.
#   guest.kill()                      # Power cut: SIGKILL, nothing is told.
#   out = guest.finish()              # Or: wait; the status must be 0.
#
# With "--socket" the server is the test's, and outlives the guest.
#
#   server = t.server(image)          # roottest.Server, on whatever host.
#   guest = Guest(t, "uml", "--socket", server.socket, run=PROGRAM)
#
# A line is here before the guest's next system call returns or soon after, and
# never before it was printed: what was reported was done.

import os
import signal
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "root"))

from roottest import *
import roottest

SCRIPT = os.path.join(os.environ["UBD_SRC"], "scripts", "guest")
# Seconds: a guest's, of a test (meson kills after 300), for a machine that is
# busy with other things; idle, most guests need 2 (UML) to 8 (qemu).
GUEST_LIMIT, DEADLINE = 240, 280
PACKAGES = {"uml": ("linux.uml", "busybox"),
            "qemu": ("qemu-system-x86_64", "busybox")}


class Guest:
    def __init__(self, t, kind, *words, run=None, timeout=GUEST_LIMIT):
        t.serial += 1
        self.err_path = t.path("guest%d.err" % t.serial)
        argv = [SCRIPT, kind, "--timeout", str(timeout), *map(str, words)]
        if run is not None:
            argv += ["--run", run]
        with open(self.err_path, "wb") as err:
            self.process = subprocess.Popen(
                argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                stderr=err)
        t.cleanup.callback(self.kill)

    def err(self):
        with open(self.err_path, errors="replace") as f:
            return f.read()

    def lines(self):
        for line in self.process.stdout:
            yield line.decode(errors="replace").rstrip("\n")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()

    def wait(self):
        """(status, output)"""
        out = self.process.stdout.read().decode(errors="replace")
        return self.process.wait(), out

    def finish(self, status=0):
        """The output of a guest that must end with @status."""
        got, out = self.wait()
        assert got == status, "guest: exit %d, not %d\n%s%s" % (
            got, status, out, self.err())
        return out


def guest(t, kind, *words, status=0, **kw):
    return Guest(t, kind, *words, **kw).finish(status)


def need_guest(kind, attach=""):
    need(*PACKAGES[kind])
    if attach == "nbd":
        need("ip", "nbd-client")
        if not os.path.exists("/dev/net/tun"):
            skip("no /dev/net/tun")
    if kind == "uml" and attach in ("", "vhost"):
        need("qemu-storage-daemon")


def metrics(path):
    """{name with labels: value}"""
    with open(path) as f:
        pairs = [l.rpartition(" ") for l in f.read().splitlines()
                 if l and not l.startswith("#")]
    return {name: float(value) for name, _, value in pairs}


class Dirty:
    """Bytes of a file that are dirty in the page cache: cachestat(2)."""

    NUMBER = 451  # The same on every architecture; Linux 6.5.

    def __init__(self, path):
        self.path = path

    def __call__(self):
        answer = (ctypes.c_uint64 * 5)()
        whole = (ctypes.c_uint64 * 2)(0, 0)
        with open(self.path, "rb") as f:
            if libc.syscall(self.NUMBER, f.fileno(), whole, answer, 0) != 0:
                skip("no cachestat: " + os.strerror(ctypes.get_errno()))
        return (answer[1] + answer[2]) * os.sysconf("SC_PAGE_SIZE")


def main(body, root=False):
    roottest.DEADLINE = DEADLINE
    need("unshare")
    if os.geteuid() != 0 and subprocess.run(
            ["unshare", "-r", "-m", "-p", "-f", "true"], check=False,
            stderr=subprocess.DEVNULL).returncode != 0:
        skip("not root, and no user namespaces")
    roottest.main(body, root=root)


__all__ = [n for n in dir() if not n.startswith("_")]
