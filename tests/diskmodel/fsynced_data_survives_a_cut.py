# SPDX-License-Identifier: BSD-3-Clause
"""A real file system on the disk model: what was fsynced is there after a power
cut of any kind, what was not is lost in a cut that keeps nothing, and from the
cut on the host sees errors.

Runs itself again inside of scripts/slow-disk, which takes everything down.
"""

import errno
import json
import mmap
import os
import subprocess
import sys

import slowdisktest

MODES = ["none", "all", "prefix", "write", "sector", "torn"]
MKFS = {
    "ext4": ["mkfs.ext4", "-q", "-F"],
    "xfs": ["mkfs.xfs", "-q", "-f"],
}
FSCK = {
    "ext4": ["e2fsck", "-f", "-n"],
    "xfs": ["xfs_repair", "-n"],
}
# No commit by the clock: what nobody asked for stays volatile.
OPTIONS = {"ext4": "commit=300", "xfs": "noatime"}


def run(*argv):
    return subprocess.run(argv, stdout=subprocess.PIPE, text=True,
                          check=True).stdout.strip()


def model(*command):
    return json.loads(run(os.environ["UBD_SLOW_CTL"],
                          os.environ["UBD_SLOW_CONTROL"], *command))


def attach():
    return run("losetup", "--find", "--show", "--direct-io=on",
               os.environ["UBD_SLOW_FILE"])


class Mounted:
    """The file system on a loop device of its own: a new one has an empty page
    cache, so that what it shows is what the disk holds.
    """

    def __init__(self, fs):
        self.fs = fs
        self.path = os.path.join(
            os.path.dirname(os.environ["UBD_SLOW_CONTROL"]), "mounted")

    def __enter__(self):
        os.makedirs(self.path, exist_ok=True)
        self.loop = attach()
        try:
            run("mount", "-t", self.fs, "-o", OPTIONS[self.fs], self.loop,
                self.path)
        finally:
            # Now, or when the last user has gone.
            run("losetup", "--detach", self.loop)
        return self

    def __exit__(self, *_):
        run("umount", self.path)


def expect_eio(what, function, *args):
    try:
        function(*args)
    except OSError as e:
        assert e.errno == errno.EIO, f"{what}: {e}"
    else:
        raise AssertionError(f"{what}: no error after the cut")


def read_direct(path):
    fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    try:
        with mmap.mmap(-1, 4096) as buf:
            os.preadv(fd, [buf], 0)
    finally:
        os.close(fd)


def write_fsync(fd, data, offset):
    os.pwrite(fd, data, offset)
    os.fsync(fd)


def cut_in_the_middle(fs, mode, seed, kept):
    with Mounted(fs) as m:
        fd = os.open(os.path.join(m.path, f"kept-{mode}"),
                     os.O_RDWR | os.O_CREAT)
        try:
            os.write(fd, kept)
            os.fsync(fd)
            with open(os.path.join(m.path, f"lost-{mode}"), "wb") as f:
                f.write(b"nobody asked for this to be durable")
            answer = model("cut", f"seed={seed}", f"mode={mode}")
            assert answer["power"] == "off", answer
            expect_eio("read of the device", read_direct, m.loop)
            expect_eio("fsync", write_fsync, fd, b"late", 0)
        finally:
            os.close(fd)
    assert model("stats")["errors"] > 0
    assert model("power-on")["power"] == "on"


def check_afterwards(fs, mode, kept):
    with Mounted(fs) as m:
        with open(os.path.join(m.path, f"kept-{mode}"), "rb") as f:
            assert f.read() == kept, f"{mode}: fsynced data was lost"
        if mode == "none":
            assert not os.path.exists(os.path.join(m.path, f"lost-{mode}"))
    loop = attach()
    try:
        run(*FSCK[fs], loop)
    finally:
        run("losetup", "--detach", loop)


def inside(fs):
    loop = attach()
    try:
        run(*MKFS[fs], loop)
    finally:
        run("losetup", "--detach", loop)
    for seed, mode in enumerate(MODES):
        kept = os.urandom(300000)
        cut_in_the_middle(fs, mode, seed, kept)
        check_afterwards(fs, mode, kept)
        print(f"{fs}: mode {mode}, seed {seed}: survived", flush=True)


def main():
    fs = sys.argv[1]
    if "UBD_SLOW_FILE" in os.environ:
        inside(fs)
        return 0
    slowdisktest.check_host(MKFS[fs][0], FSCK[fs][0])
    return subprocess.run(
        [slowdisktest.SLOW_DISK, "--fs", "file", "--size", "400M",
         "--flush-ms", "0", "--", sys.executable, *sys.argv],
        check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
