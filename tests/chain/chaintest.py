# SPDX-License-Identifier: BSD-3-Clause
#
# What the tests in this folder share: running scripts/chain, and finding out
# whether anything of it is left.

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

SKIP = 77
SOURCE = os.environ["UBD_SRC"]
CHAIN = os.path.join(SOURCE, "scripts", "chain")
# Seconds; below the time after which meson kills.
PATIENCE = 280 * float(os.environ.get("UBD_TIMEOUT_MULTIPLIER", "1"))
# What a guest does to its disk: mkfs, a file, sqlite, a static program.
GUEST_LOAD = """set -e
mkfs.ext4 -q "$DISK"
mount -o noinit_itable "$DISK" /mnt  # It would write on its own, later.
dd if=/dev/zero of=/mnt/f bs=64k count=8 conv=fsync status=none
echo more >/mnt/g
busybox sync
if command -v sqlite3 >/dev/null; then
    sqlite3 /mnt/db 'create table t(a); insert into t values(1);'
fi
echo done in the guest"""
# A client on the host: writes and flushes, one FUA, and a flush that is clean.
CLIENT = """
import nbd, os
h = nbd.NBD()
h.connect_unix(os.environ["NBD_SOCKET"])
for i in range(4):
    h.pwrite(b"x" * 65536, i * 65536)
    h.flush()
h.pwrite(b"y" * 4096, 0, nbd.CMD_FLAG_FUA)
h.zero(65536, 1 << 20)
h.flush()
h.flush()
h.shutdown()
"""


def skip(reason):
    print("SKIP:", reason)
    sys.exit(SKIP)


def need(*programs):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    if os.geteuid() != 0:
        skip("needs root, for the kernel's events")
    for program in ("nbdkit", "losetup", "mkfs.ext4", *programs):
        if shutil.which(program) is None:
            skip(program + " is not installed")
    folder = tempfile.mkdtemp()
    try:
        done = subprocess.run(
            ["unshare", "-m", "sh", "-c",
             'mount -t tracefs none "$1" && [ -d "$1/instances" ] &&'
             ' [ -d "$1/events/block/block_rq_issue" ] && losetup -f', "sh",
             folder], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            text=True, check=False)
    finally:
        os.rmdir(folder)
    if done.returncode != 0:
        skip("no tracefs with block events, or no loop device, here: "
             + (done.stdout.strip().splitlines() or ["?"])[-1])


class Result:
    def __init__(self, argv, status, out, err):
        self.argv, self.status, self.out, self.err = argv, status, out, err

    def expect(self, status, *words):
        """Fail unless it ended like that and said all of @words."""
        missing = [w for w in words if w not in self.out + self.err]
        if self.status != status or missing:
            fail("expected status %d, got %d; not said: %r\n--- %s\n%s\n--- "
                 "stderr\n%s" % (status, self.status, missing,
                                 " ".join(self.argv), self.out, self.err))
        return self


def fail(text):
    print("FAILED:", text)
    sys.exit(1)


def chain(*words, folder=None):
    argv = [CHAIN, *words]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, text=True, cwd=folder,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          timeout=PATIENCE, check=False)
    return Result(argv, done.returncode, done.stdout, done.stderr)


# ---- What must not be left ----

def instances():
    """Of all chains; in the host's tracing, whoever mounted it."""
    folder = tempfile.mkdtemp()
    try:
        return subprocess.run(
            ["unshare", "-m", "sh", "-c", 'mount -t tracefs none "$1" &&'
             ' ls "$1/instances"', "sh", folder], check=True, text=True,
            stdout=subprocess.PIPE).stdout.split()
    finally:
        os.rmdir(folder)


def leftovers(pid, folder):
    """What the chain with that @pid, and TMPDIR @folder, has left behind."""
    found = ["instance " + name for name in instances()
             if re.match("ubd-chain-%d-" % pid, name)]
    found += ["file " + name for name in os.listdir(folder)]
    for name in os.listdir("/sys/block"):
        try:
            with open("/sys/block/%s/loop/backing_file" % name,
                      encoding="utf-8") as f:
                if folder in f.read():
                    found.append("loop device " + name)
        except OSError:
            pass  # Not a loop device, or not in use.
    with open("/proc/self/mounts", encoding="utf-8") as f:
        found += ["mount " + line for line in f if folder in line]
    return found + ["process %s" % p for p in processes(folder)]


def processes(folder):
    """Those that have @folder on their command line or as TMPDIR."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        try:
            with open("/proc/%s/cmdline" % pid, "rb") as f:
                words = f.read()
            with open("/proc/%s/environ" % pid, "rb") as f:
                words += f.read()
        except OSError:
            continue  # It has ended meanwhile.
        if folder.encode() in words:
            found.append("%s: %s" % (pid, words[:80].replace(b"\0", b" ")))
    return found


def end_processes(folder):
    """What a failed test would leave running; the folder's name is ours."""
    for process in processes(folder):
        try:
            os.kill(int(process.split(":")[0]), signal.SIGKILL)
        except ProcessLookupError:
            pass


def await_nothing_left(pid, folder):
    """Kernel and init clean up on their own: give them time, then insist."""
    give_up = time.monotonic() + 30
    while True:
        found = leftovers(pid, folder)
        if not found:
            return
        if time.monotonic() > give_up:
            fail("left behind: " + "; ".join(found))
        time.sleep(0.02)
