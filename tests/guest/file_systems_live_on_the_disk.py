#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# A file system made, filled, unmounted and checked in the guest is whole
# afterwards, in a second guest (or for qemu, whose start takes longer, at a
# second mount) as well.

from guesttest import *

CHECKERS = {"ext4": "e2fsck -fn $DISK", "xfs": "xfs_repair -n $DISK",
            "btrfs": "btrfs check --readonly $DISK"}
MAKERS = {"ext4": "mkfs.ext4 -q $DISK", "xfs": "mkfs.xfs -q -f $DISK",
          "btrfs": "mkfs.btrfs -q -f $DISK"}

MAKE = """
    set -e
    {make} >/share/{name}.log 2>&1
    mount -t {name} $DISK /mnt
    mkdir /mnt/folder
    cp -r /etc/init.d /etc/pam.d /mnt/folder/
    dd if=/dev/urandom of=/mnt/folder/large bs=1M count=6 2>/dev/null
    ln /mnt/folder/large /mnt/second
    rm -r /mnt/folder/pam.d
    (cd /mnt && find . -type f | sort | xargs md5sum) >/share/{name}.sums
    umount /mnt
    {check} >/share/{name}.log 2>&1
"""
CHECK = """
    set -e
    mount -t {name} -o ro $DISK /mnt
    (cd /mnt && find . -type f | sort | xargs md5sum) |
        cmp - /share/{name}.sums
    [ $(wc -l </share/{name}.sums) -gt 5 ]
    umount /mnt
    {check} >/share/{name}.log 2>&1
    echo {name} is whole
"""


def test(t):
    kind, names = sys.argv[1], sys.argv[2:]
    need_guest(kind)
    need("mkfs.ext4", "mkfs.xfs", "mkfs.btrfs")
    image = t.sparse("disk.img", 320 * MiB)
    share = t.path("share")
    os.mkdir(share)
    steps = []
    for name in names:
        for text in MAKE, CHECK:
            steps.append(text.format(name=name, make=MAKERS[name],
                                     check=CHECKERS[name]))
    # Together in one guest for qemu, one after the other for UML.
    groups = ["\n".join(steps)] if kind == "qemu" else steps
    out = ""
    for text in groups:
        out += guest(t, kind, "--disk", image, "--share", share, run=text)
    want = "".join("%s is whole\n" % name for name in names)
    assert out == want, out


main(test)
