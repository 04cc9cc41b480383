#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the promise of each mode, from the fsync of a program in the guest to
# the flush of the host's disk, counted in the plugin and by the disk:
#
#   barrier  each fsync is a FLUSH, a sync and a flush of the disk, and leaves
#            nothing dirty on the host
#   osync    the writes are durable, nothing is ever dirty, a FLUSH costs none
#   unsafe   the FLUSH arrives and nothing reaches the disk

from guesttest import *

FSYNCS = 3
DISK = 24 * MiB


def prepared_image(t):
    """On a disk of its own, whose file system stays quiet: ready blocks, and
    no commit of its journal that is not asked for."""
    where = t.filesystem("ext4", 128 * MiB)
    run("mount", "-o", "remount,commit=300", where)
    image = os.path.join(where, "disk.img")
    with open(image, "wb") as f:
        f.write(pattern(1, DISK))
        os.fsync(f.fileno())
    run("sync", "-f", where)
    return image


def fsync_in_a_guest(t, kind, attach, mode, image):
    """What was seen: a dict, and the same as words."""
    dirty = Dirty(image)
    assert dirty() == 0
    flushes = t.disk.flushes()
    prom = t.path("metrics.prom")
    guest(t, kind, "--attach", attach, "--disk", image, "--cache", mode,
          "--plugin", "metrics=" + prom, run="""
        set -e
        for i in 1 2 %d; do
            dd if=/dev/zero of=$DISK bs=1M seek=$((i * 4)) count=2 \\
                conv=notrunc,fsync 2>/dev/null
        done""" % FSYNCS)
    flushes = t.disk.flushes() - flushes
    left = dirty()
    m = metrics(prom)
    asked = m['ubd_requests_total{kind="flush"}']
    syncs = m["ubd_syncs_submitted_total"]
    seen = "%d FLUSHes, %d syncs, %d flushes of the disk, %d bytes dirty" % (
        asked, syncs, flushes, left)
    print(seen)
    with open(image, "rb") as f:
        assert f.read()[8 * MiB:10 * MiB] == bytes(2 * MiB), "no data"
    assert asked >= FSYNCS, seen
    return syncs, flushes, left, seen


def test(t):
    kind, attach, mode = sys.argv[1:]
    need_guest(kind, attach)
    image = prepared_image(t)
    # Somebody else's sync(2) flushes our disk as well; a mode that flushes
    # does so each time.
    for attempt in range(5):
        syncs, flushes, left, seen = fsync_in_a_guest(t, kind, attach, mode,
                                                      image)
        if mode == "barrier":
            assert syncs >= FSYNCS and flushes >= FSYNCS and left == 0, seen
        elif mode == "osync":
            assert syncs == 0 and flushes >= FSYNCS and left == 0, seen
        else:
            assert syncs == 0, seen
        if mode != "unsafe" or flushes == 0:
            return
        run("sync", "-f", image)
    raise AssertionError(seen)


main(test, root=True)
