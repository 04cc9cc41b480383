#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the wire as nbdcopy uses it: four connections, 64 requests in flight,
# zeroes of up to 128 MiB in one request, and --flush; into a disk full of old
# data, from disk to disk, and out again.

from toolstest import *


def test(t):
    need("nbdcopy")
    size = 200 * MiB + 512
    source = patchwork(t.sparse("source", size), 48 * MiB, 1)
    with open(source, "r+b") as f:  # Then a hole of 150 MiB, then an end.
        f.truncate(size)
        f.seek(size - 4608)
        f.write(pattern(5, 4608))
    image = old_data(t.sparse("disk.img", size), size)
    other = old_data(t.sparse("other.img", size), size)
    out = t.sparse("out", 0)
    s = t.server(image, *sys.argv[1:])
    o = t.server(other, *sys.argv[1:])
    run("nbdcopy", "--flush", source, s.uri)
    run("nbdcopy", "--flush", "--allocated", s.uri, o.uri)
    run("nbdcopy", "--flush", "--connections=4", o.uri, out)
    s.stop()
    o.stop()
    want = md5(source)
    assert md5(image) == want, "into the disk"
    assert md5(other) == want, "from disk to disk"
    assert md5(out) == want, "out of the disk"
    assert s.metric("ubd_requests_total{kind=\"flush\"}") > 0


main(test)
