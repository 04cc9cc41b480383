#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards group commit where it pays: on a disk whose flush takes 8 ms and whose
# write takes 4 ms, sixteen clients that write and flush all the time share
# syncs, and the disk itself sees no more flushes than we sent syncs.

from roottest import *

NR, ROUNDS = 16, 12


def test(t):
    disk = os.environ["UBD_SLOW_DISK"]
    s = t.server(disk, *sys.argv[1:])
    handles = [s.connect() for _ in range(NR)]
    p = Pump(handles)
    buffers = [nbd.Buffer.from_bytearray(bytearray(pattern(i, 4096)))
               for i in range(NR)]
    left = {h: ROUNDS for h in handles}
    for i, h in enumerate(handles):
        p.issue(h, h.aio_pwrite(buffers[i], i * 4096), (h, i, "write"))
    while p.pending:
        for (h, i, what), error in p.reap():
            assert error is None, "%s: %s" % (what, error)
            if what == "write":
                p.issue(h, h.aio_flush(), (h, i, "flush"))
                continue
            left[h] -= 1
            if left[h]:
                p.issue(h, h.aio_pwrite(buffers[i], i * 4096), (h, i, "write"))
    s.stop()
    flushes = NR * ROUNDS
    s.expect_metric('ubd_requests_total{kind="flush"}', flushes)
    syncs = s.metric("ubd_syncs_submitted_total")
    merged = s.metric("ubd_flushes_merged_total")
    clean = s.metric("ubd_flushes_clean_total")
    print("%d flushes: %d syncs, %d merged, %d clean" % (flushes, syncs,
                                                         merged, clean))
    assert syncs + merged + clean == flushes
    assert merged >= flushes // 2, "only %d of %d flushes were merged" % (
        merged, flushes)
    s.expect_metric("ubd_syncs_failed_total", 0)
    with open(disk, "rb") as f:
        for i in range(NR):
            assert f.read(4096) == pattern(i, 4096), "block %d" % i


def enter_slow_disk():
    """Start again, with a slow disk.  Nothing of ours may exist before that:
    nobody would undo it.
    """
    slow_disk = os.path.join(os.environ["UBD_SRC"], "scripts", "slow-disk")
    if os.geteuid() != 0:
        skip("needs root")
    need("losetup", "unshare")
    for device in "/dev/fuse", "/dev/loop-control":
        if not os.path.exists(device):
            skip("needs " + device)
    os.execv(slow_disk, [slow_disk, "--fs", "none", "--size", "64M", "--set",
                         "write_ms=4", "--set", "flush_ms=8", "--",
                         sys.executable, *sys.argv])


if "UBD_SLOW_DISK" not in os.environ:
    enter_slow_disk()
main(test)
