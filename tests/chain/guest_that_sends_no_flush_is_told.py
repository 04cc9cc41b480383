#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""ext2 writes its pages for `sync` and sends no flush: that is no success,
although the server did all that it was asked for.  An fsync of the device
sends one."""

import csv
import os
import tempfile

import chaintest
from chaintest import chain, fail

LOAD = """set -e
mkfs.ext2 -q "$DISK"
mount -t ext2 "$DISK" /mnt
echo more >/mnt/g
busybox sync
sync "$DISK" """


def main():
    chaintest.need("cc", "linux.uml", "busybox", "qemu-storage-daemon",
                   "mkfs.ext2")
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "x.csv")
        chain("--guest", "uml", "--check", "barrier", "--csv", table,
              "--timeout", "200", "--", LOAD).expect(
                  1, "the guest's sync sent no FLUSH, but the WRITE")
        with open(table, encoding="utf-8") as f:
            rows = [(r["kind"], r["program"], r["fate"])
                    for r in csv.DictReader(f)]
    want = [("sync", "busybox", "broken"), ("fsync", "sync", "reached")]
    if rows[-2:] != want:
        fail("the last syncs are %r, expected %r" % (rows[-2:], want))


if __name__ == "__main__":
    main()
