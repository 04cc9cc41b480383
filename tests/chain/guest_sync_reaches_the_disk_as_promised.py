#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A guest's fsync, sync and sqlite commits, followed to the host's disk."""

import sys

import chaintest
from chaintest import chain

TOOLS = {"uml": ["linux.uml", "busybox"],
         "qemu": ["qemu-system-x86_64", "busybox"]}


def main(guest, attach, mode):
    chaintest.need("cc", *TOOLS[guest])
    if attach == "vhost":
        chaintest.need("qemu-storage-daemon")
    result = chain("--guest", guest, "--attach", attach, "--cache", mode,
                   "--check", mode, "--timeout", "200", "--",
                   chaintest.GUEST_LOAD)
    result.expect(0, "done in the guest", "guest syncs kept the promise",
                  "fsync by mkfs.ext4", "fsync returns 0", "dd",
                  "times of the guest are right to")
    result.expect(0, *{
        "unsafe": ["FLUSH acknowledged, no host sync", "MISSING"],
        "osync": ["a durable write", "reached the disk"],
        "barrier": ["made a sync of its own", "flush issued",
                    "flush completed", "reply → guest"]}[mode])


if __name__ == "__main__":
    main(*sys.argv[1:])
