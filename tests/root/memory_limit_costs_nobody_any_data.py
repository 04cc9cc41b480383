#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards against an allocation that nobody checks: a server without memory for a
# request says so to that client and goes on with the others; and one in a
# cgroup that is smaller than what is written to it finishes everything, since
# what is in the host's page cache can be written out.

import resource
import time

from roottest import *

CGROUPS = "/sys/fs/cgroup/memory"
LIMIT = 96 * MiB


def settled_size(s):
    """Bytes of address space, once they are the same twenty times in a row: a
    new arena of malloc is larger for a moment."""
    end = time.monotonic() + 60
    last, same = 0, 0
    while same < 20:
        assert time.monotonic() < end, "the server does not come to rest"
        with open("/proc/%d/statm" % s.proc.pid) as f:
            size = int(f.read().split()[0]) * 4096
        same = same + 1 if size == last else 0
        last = size
        time.sleep(0.005)
    return last


def no_address_space(t):
    s = t.server(t.sparse("small.img", 128 * MiB), *sys.argv[1:])
    h, other = s.connect(), s.connect()
    greedy = [s.connect() for _ in range(3)]
    h.pwrite(pattern(1, 4096), 0)
    for c in other, *greedy:
        c.pread(512, 0)
    # nbdkit starts 17 threads for each without waiting for them.
    end = time.monotonic() + 60
    while len(os.listdir("/proc/%d/task" % s.proc.pid)) < 5 * 17:
        assert time.monotonic() < end, "nbdkit did not start its threads"
        time.sleep(0.01)
    size = settled_size(s)
    resource.prlimit(s.proc.pid, resource.RLIMIT_AS, (size + 8 * MiB,
                                                      size + 8 * MiB))
    # nbdkit says ENOMEM, or hangs up on them.
    for c in greedy:
        e = error_of(c.pread, 64 * MiB, 0)
        assert e in ("ENOMEM", "ENOTCONN"), \
            "a read of 64 MiB without memory: %s" % e
        e = error_of(c.pwrite, bytes(64 * MiB), 8192)
        assert e is not None, "a write of 64 MiB without memory"
    for c in h, other:
        assert c.pread(4096, 0) == pattern(1, 4096)
        c.pwrite(pattern(2, 4096), 4096, nbd.CMD_FLAG_FUA)
        c.flush()
    s.stop()
    s.expect_metric("ubd_lost_data", 0)
    s.expect_metric('ubd_request_errors_total{kind="write"}', 0)


def small_cgroup(t):
    """A server that enters before it is started; its cache counts."""
    group = os.path.join(CGROUPS, "ubd-test-%d" % os.getpid())
    try:
        os.mkdir(group)
    except OSError as e:
        print("note: no memory cgroup here (%s)" % e)
        return
    t.cleanup.callback(os.rmdir, group)
    with open(os.path.join(group, "memory.limit_in_bytes"), "w") as f:
        f.write(str(LIMIT))
    home = t.filesystem("ext4", 512 * MiB)
    image = os.path.join(home, "disk.img")
    with open(image, "wb") as f:
        f.truncate(256 * MiB)
    s = t.server(image, *sys.argv[1:])
    # An empty cgroup can be removed; the server is killed before that.
    t.cleanup.callback(s.kill)
    with open(os.path.join(group, "cgroup.procs"), "w") as f:
        f.write(str(s.proc.pid))
    h = s.connect()
    for at in range(0, 192 * MiB, MiB):
        e = error_of(h.pwrite, pattern(at // MiB, MiB), at)
        assert e is None, "a write at %d: %s" % (at, e)
    assert error_of(h.flush) is None
    for at in range(0, 192 * MiB, 16 * MiB):
        assert h.pread(MiB, at) == pattern(at // MiB, MiB), "at %d" % at
    with open(os.path.join(group, "memory.max_usage_in_bytes")) as f:
        peak = int(f.read())
    assert LIMIT // 2 < peak <= LIMIT, "the limit was not felt: %d" % peak
    s.stop()
    s.expect_metric("ubd_lost_data", 0)
    s.expect_metric('ubd_request_errors_total{kind="write"}', 0)


def test(t):
    no_address_space(t)
    small_cgroup(t)


main(test)
