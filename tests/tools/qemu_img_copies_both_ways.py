#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the wire as qemu's block layer uses it: convert into the disk (zeroes
# as WRITE_ZEROES over old data, a FLUSH at the end), compare, convert out of
# it (sparse, by extents), with qemu's caching on and off.

from toolstest import *


def test(t):
    need("qemu-img")
    size = 48 * MiB + 1536
    for n, cache in enumerate(("writeback", "none", "writethrough")):
        source = patchwork(t.sparse("source", size), size, n)
        image = old_data(t.sparse("disk.img", size), size)
        out = t.sparse("out", 0)
        s = t.server(image, *sys.argv[1:])
        run("qemu-img", "convert", "-n", "-W", "-t", cache, "-f", "raw",
            "-O", "raw", source, s.uri)
        run("qemu-img", "compare", "-f", "raw", "-F", "raw", source, s.uri)
        run("qemu-img", "convert", "-f", "raw", "-O", "raw", s.uri, out)
        s.stop()
        assert md5(source) == md5(image) == md5(out), cache
        assert s.metric("ubd_requests_total{kind=\"zero\"}") > 0
        assert s.metric("ubd_requests_total{kind=\"flush\"}") > 0


main(test)
