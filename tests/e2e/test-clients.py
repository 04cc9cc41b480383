#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Clients that people use get the same bytes back: qemu-img, qemu-io, nbdcopy,
# nbdinfo, fio with checksums, and a file system made and checked on the disk.

import json

from ubdtest import *


def uri(server):
    return f"nbd+unix:///?socket={server.sock}"


@test
def qemu_img_copies_in_and_compares(t):
    need_tool("qemu-img")
    source = t.path("source.img")
    with open(source, "wb") as f:
        f.write(pattern(3 * MiB))
        f.truncate(20 * MiB)
        f.seek(11 * MiB + 512)
        f.write(pattern(2 * MiB, seed=2))
    for options in ((), ("io=syscalls",), ("cache=osync",)):
        img = t.image(20 * MiB, data=pattern(8 * MiB, seed=9))
        server = t.serve(img, *options)
        t.run(["qemu-img", "convert", "-n", "-f", "raw", "-O", "raw", source,
               uri(server)])
        out = t.run(["qemu-img", "compare", "-f", "raw", "-F", "raw", source,
                     uri(server)])
        mentions(out, "identical")
        server.stop()
        same_bytes(read_file(img), read_file(source), f"{options}: the file")


@test
def qemu_io_writes_and_verifies(t):
    need_tool("qemu-io")
    server = t.serve(t.image(8 * MiB))
    out = t.run(["qemu-io", "-f", "raw", "-c", "write -P 0x5a 1000 70000",
                 "-c", "read -P 0x5a 1000 70000", "-c", "write -z 4k 8k",
                 "-c", "read -P 0 4k 8k", "-c", "discard 1M 1M",
                 "-c", "write -f -P 7 2M 64k", "-c", "read -P 7 2M 64k",
                 "-c", "flush", uri(server)])
    check("Pattern verification failed" not in out, out)
    m = server.stop()
    check(m("ubd_requests_total", kind="flush") >= 1, "flushes")
    check(m("ubd_requests_total", kind="trim") >= 1, "trims")


@test
def nbdcopy_copies_in_and_out(t):
    need_tool("nbdcopy")
    size = 150 * MiB  # Beyond the 128 MiB of its largest zero.
    source = t.path("source.img")
    with open(source, "wb") as f:
        f.write(pattern(2 * MiB))
        f.truncate(size)
        f.seek(size - MiB)
        f.write(pattern(MiB))
    img = t.image(size)
    with open(img, "r+b") as f:  # Stale data that the zeroes must cover.
        for at in range(0, size, 16 * MiB):
            f.seek(at)
            f.write(b"stale" * 1000)
    server = t.serve(img)
    t.run(["nbdcopy", "--flush", source, uri(server)])
    t.run(["nbdcopy", uri(server), t.path("out.img")])
    m = server.stop()
    check(m("ubd_requests_total", kind="flush") >= 1, "flushes")
    t.run(["cmp", source, img])
    t.run(["cmp", source, t.path("out.img")])


@test
def nbdinfo_tells_what_we_are(t):
    need_tool("nbdinfo")
    img = t.image(4 * MiB, data=pattern(MiB))
    server = t.serve(img)
    told = json.loads(t.run(["nbdinfo", "--json", uri(server)]))["exports"][0]
    equal(told["export-size"], 4 * MiB, "size")
    for what in ("can_flush", "can_fua", "can_multi_conn", "can_trim",
                 "can_zero", "can_cache"):
        check(told[what], what)
    mentions(t.run(["nbdinfo", "--map", uri(server)]), "data", "hole")
    server.stop()


@test
def fio_verifies_random_mixed_sizes(t):
    need_tool("fio")
    if "nbd" not in t.run(["fio", "--enghelp"]):
        raise Skip("this fio has no nbd engine")
    ways = [("io=" + io,) for io in engines()]
    if takes_direct(t.image(name="probe.img")):
        ways.append(("direct=true",))
    for way in ways:
        server = t.serve(t.image(16 * MiB), *way)
        t.run(["fio", "--name=v", "--ioengine=nbd", "--uri=" + uri(server),
               "--rw=randwrite", "--bsrange=512-64k", "--bs_unaligned=1",
               "--size=16M", "--iodepth=16", "--verify=crc32c",
               "--verify_fatal=1", "--fsync=64", "--io_size=12M",
               "--randseed=1", "--output=" + t.path("fio.out")])
        m = server.stop()
        check(m.flushes > 0, f"{way}: no flush arrived")


@test
def a_file_system_survives_the_way_through(t):
    # Made outside, copied in through the server, checked, copied out, compared.
    mke2fs = shutil.which("mke2fs", path=os.environ["PATH"] + ":/sbin")
    e2fsck = shutil.which("e2fsck", path=os.environ["PATH"] + ":/sbin")
    if not mke2fs or not e2fsck:
        raise Skip("e2fsprogs is not installed")
    need_tool("nbdcopy")
    fs = t.path("fs.img")
    tree = os.path.join(source_root(), "tests")
    t.run([mke2fs, "-q", "-t", "ext4", "-d", tree, fs, "32M"])
    img = t.image(32 * MiB)
    server = t.serve(img)
    t.run(["nbdcopy", "--flush", fs, uri(server)])
    t.run(["nbdcopy", uri(server), t.path("back.img")])
    server.stop()
    t.run([e2fsck, "-f", "-n", img])
    t.run(["cmp", fs, img])
    t.run(["cmp", fs, t.path("back.img")])


main()
