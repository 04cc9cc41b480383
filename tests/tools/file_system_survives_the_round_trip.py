#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the whole: a real ext4 file system full of real files is copied into
# a served disk and flushed.  The image file then passes e2fsck, files in it
# read back as they are, and the disk copied out is the same to the byte.

from toolstest import *

FILES = "/usr/share/doc"


def test(t):
    need("mke2fs", "e2fsck", "debugfs", "nbdcopy")
    if not os.path.isdir(FILES):
        skip("no " + FILES)
    files, used = [], 0
    for top, _, names in os.walk(FILES):
        for n in names:
            path = os.path.join(top, n)
            if os.path.isfile(path) and not os.path.islink(path):
                files.append(path)
                used += os.path.getsize(path) + 8192
    size = (used + used // 4 + 64 * MiB) // MiB * MiB
    made = t.sparse("made.img", size)
    run("mke2fs", "-q", "-t", "ext4", "-d", FILES, made)

    image = t.sparse("disk.img", size)
    s = t.server(image, *sys.argv[1:])
    run("nbdcopy", "--flush", made, s.uri)
    # The server is alive and has the file open: look past it.
    run("e2fsck", "-fn", image)
    for path in random.Random(1).sample(files, min(20, len(files))):
        inside = path[len(FILES):]
        got = t.path("dumped")
        run("debugfs", "-R", 'dump "%s" %s' % (inside, got), image)
        with open(path, "rb") as a, open(got, "rb") as b:
            assert a.read() == b.read(), inside
        os.unlink(got)
    out = t.sparse("out.img", 0)
    run("nbdcopy", s.uri, out)
    s.stop()
    run("cmp", made, image)
    run("cmp", made, out)
    s.expect_metric("ubd_lost_data", 0)


main(test)
