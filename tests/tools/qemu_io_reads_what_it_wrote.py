#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the wire as a guest's disk driver uses it through qemu: writes, FUA
# writes, zeroes, discards and flushes, also with many in flight, each checked
# by pattern; with qemu's cache on, off, and as a write-through disk.

from toolstest import *

SCRIPT = """
write -P 0x11 0 1M
write -P 0x22 512k 512
read -P 0x11 0 512k
read -P 0x22 512k 512
write -f -P 0x33 2M 64k
aio_write -P 0x44 3M 64k
aio_write -P 0x45 3136k 64k
aio_write -f -P 0x46 3200k 64k
aio_write -z 3264k 64k
aio_flush
write -P 0x55 4M 1M
write -z 4608k 4k
write -z -u 4612k 4k
write -z -f 4616k 4k
read -P 0x55 4M 512k
read -P 0 4608k 12k
read -P 0x55 4620k 4k
write -P 0x66 6M 1M
discard 6M 512k
read -P 0x66 6656k 512k
write -P 0x77 16776192 1024
writev -P 0x78 8M 512 4k 1536 64k
read -P 0x78 8M 71680
flush
read -P 0x33 2M 64k
read -P 0x44 3M 64k
read -P 0x45 3136k 64k
read -P 0x46 3200k 64k
read -P 0 3264k 64k
read -P 0x77 16776192 1024
"""


def qemu_io(uri, cache, lines):
    argv = ["qemu-io", "-f", "raw", "-t", cache]
    for line in lines:
        argv += ["-c", line]
    out = run(*argv, uri)
    assert "verification failed" not in out, out
    assert "failed" not in out and "error" not in out.lower(), out


def test(t):
    need("qemu-io")
    lines = SCRIPT.strip().splitlines()
    for cache in "none", "writeback", "writethrough":
        image = old_data(t.sparse("disk.img", 16 * MiB), 16 * MiB)
        s = t.server(image, *sys.argv[1:])
        qemu_io(s.uri, cache, lines)
        # Another client, and then another server, find the same.
        again = [l for l in lines[-6:] if l.startswith("read")]
        qemu_io(s.uri, cache, again)
        s.stop()
        assert s.metric("ubd_fua_total{kind=\"write\"}") > 0
        s = t.server(image, *sys.argv[1:], nbdkit=("-r",))
        out = run("qemu-io", "-r", "-f", "raw", "-c", again[0], s.uri)
        assert "failed" not in out, out
        s.stop()


main(test)
