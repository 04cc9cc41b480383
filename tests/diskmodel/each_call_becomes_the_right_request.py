# SPDX-License-Identifier: BSD-3-Clause
"""What a program does with the model's file, and what a loop device does on its
behalf, reaches the model as the request that a disk would see.
"""

import ctypes
import errno
import fcntl
import json
import mmap
import os
import struct
import subprocess
import sys

import slowdisktest

SIZE = 64 << 20
BLKDISCARD = 0x1277
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 0x01, 0x02, 0x10
LIBC = ctypes.CDLL(None, use_errno=True)
LIBC.fallocate64.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64,
                             ctypes.c_int64]
COUNTED = ("writes", "fua_writes", "flushes", "zeroes", "write_bytes")


def stats():
    answer = subprocess.run(
        [os.environ["UBD_SLOW_CTL"], os.environ["UBD_SLOW_CONTROL"], "stats"],
        stdout=subprocess.PIPE, text=True, check=True).stdout
    return json.loads(answer)


def fallocate(fd, mode, offset, length):
    """The program of that name would add an fsync."""
    if LIBC.fallocate64(fd, mode, offset, length) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")


def expect(what, function, *args, **wanted):
    before = stats()
    function(*args)
    after = stats()
    for name in COUNTED:
        got = after[name] - before[name]
        assert got == wanted.get(name, 0), f"{what}: {got} {name}"


def expect_error(what, error, function, *args):
    try:
        function(*args)
    except OSError as e:
        assert e.errno == error, f"{what}: {e}"
    else:
        raise AssertionError(f"{what}: no error")


def on_the_file():
    fd = os.open(os.environ["UBD_SLOW_FILE"], os.O_RDWR)
    block = b"x" * 4096

    expect("write", os.pwrite, fd, block, 0, writes=1, write_bytes=4096)
    with mmap.mmap(-1, 1 << 20) as pages:
        pages.write(block * 256)
        expect("1 MiB of whole pages", os.pwrite, fd, pages, 0, writes=1,
               write_bytes=1 << 20)
    expect("RWF_DSYNC", os.pwritev, fd, [block], 0, os.RWF_DSYNC, writes=1,
           fua_writes=1, write_bytes=4096)
    expect("fdatasync", os.fdatasync, fd, flushes=1)
    expect("fsync", os.fsync, fd, flushes=1)
    expect("read", os.pread, fd, 4096, 0)
    expect("punch", fallocate, fd, PUNCH_HOLE | KEEP_SIZE, 512, 1024, zeroes=1)
    assert os.pread(fd, 4096, 0) == block[:512] + bytes(1024) + block[1536:]
    expect("zero", fallocate, fd, ZERO_RANGE, 0, 4096, zeroes=1)
    assert os.pread(fd, 4096, 0) == bytes(4096)
    expect("preallocation", os.posix_fallocate, fd, 0, SIZE)
    assert os.pread(fd, 8192, SIZE - 4096) == bytes(4096)
    assert os.pread(fd, 1, SIZE) == b""
    expect_error("write at the end", errno.ENOSPC, os.pwrite, fd, block, SIZE)
    expect_error("truncate", errno.EPERM, os.ftruncate, fd, 0)
    os.pwrite(fd, block, 0)
    # A disk does not learn of it.
    expect("close", os.close, fd)


def on_the_loop_device():
    fd = os.open(os.environ["UBD_SLOW_DEV"], os.O_RDWR)
    os.pwrite(fd, b"x" * 65536, 0)
    expect("fsync", os.fsync, fd, writes=1, write_bytes=65536, flushes=1)
    expect("discard", fcntl.ioctl, fd, BLKDISCARD, struct.pack("QQ", 0, 65536),
           zeroes=1)
    assert os.pread(fd, 65536, 0) == bytes(65536)
    os.close(fd)


def main():
    if "UBD_SLOW_DEV" in os.environ:
        on_the_loop_device()
    elif "UBD_SLOW_FILE" in os.environ:
        on_the_file()
    else:
        slowdisktest.check_host()
        for fs in ("file", "none"):
            subprocess.run(
                [slowdisktest.SLOW_DISK, "--fs", fs, "--size", str(SIZE),
                 "--flush-ms", "0", "--", sys.executable, *sys.argv],
                check=True)


if __name__ == "__main__":
    main()
