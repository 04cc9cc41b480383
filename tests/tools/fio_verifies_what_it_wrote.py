#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the data under load: fio's own NBD client, two jobs on two
# connections, random writes of mixed sizes with FLUSHes in between, every
# block with a checksum that is verified while the load runs and again after.

from toolstest import *


def fio(t, uri, *argv):
    run("fio", "--output=" + t.path("fio.out"), "--name=verify",
        "--ioengine=nbd", "--uri=" + uri, "--thread", "--numjobs=2",
        "--size=12m", "--offset_increment=12m", "--iodepth=16",
        "--verify=crc32c", "--verify_fatal=1", "--randrepeat=0",
        "--verify_state_save=0", "--group_reporting", *argv, cwd=t.dir)


def test(t):
    need("fio")
    if "nbd" not in run("fio", "--enghelp").split():
        skip("this fio has no NBD engine")
    s = t.server(t.sparse("disk.img", 24 * MiB), *sys.argv[1:])
    sizes = "--bssplit=512/20:1536/10:4k/40:12k/10:64k/15:256k/5"
    fio(t, s.uri, "--rw=randwrite", sizes, "--bsrange=512-256k", "--fsync=16",
        "--verify_backlog=64", "--do_verify=1")
    fio(t, s.uri, "--rw=randrw", "--bsrange=512-128k", "--blocksize_unaligned",
        "--fsync=32", "--verify_backlog=16", "--do_verify=1")
    s.stop()
    assert s.metric("ubd_requests_total{kind=\"flush\"}") > 0


main(test)
