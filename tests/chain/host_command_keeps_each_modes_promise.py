#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A client on the host, in a mode, on a file system, with a way of I/O.

The check of the mode is passed, and that of a mode which promises more, or
something else, is not.
"""

import csv
import os
import sys
import tempfile

import chaintest
from chaintest import chain, fail

OTHERS = {"barrier": {"osync": "changes were acknowledged before they were on"
                               " the disk",
                      "unsafe": "the server synced for"},
          "osync": {"unsafe": "the server synced for"},
          "unsafe": {"barrier": "FLUSH acknowledged, no host sync",
                     "osync": "FLUSH acknowledged, no host sync"}}


def main(mode, filesystem, way):
    chaintest.need("mkfs." + filesystem)
    words = ["--private-disk", filesystem, "--io", way, "--cache", mode]
    command = ["--", "/usr/bin/python3", "-c", chaintest.CLIENT]
    with tempfile.TemporaryDirectory() as folder:
        table = os.path.join(folder, "x.csv")
        chain(*words, "--check", mode, "--csv", table, *command).expect(
            0, "every one of 7 client syncs kept the promise")
        with open(table, encoding="utf-8") as f:
            fates = [row["fate"] for row in csv.DictReader(f)]
    # Four flushes with data, a write with FUA, the flush of the zero, and one
    # that finds nothing new.
    want = {"barrier": ["reached"] * 6 + ["clean"], "unsafe": ["none"] * 7,
            "osync": ["clean"] * 4 + ["reached"] + ["clean"] * 2}[mode]
    if fates != want:
        fail("the syncs are %r, expected %r" % (fates, want))
    for other, reason in OTHERS[mode].items():
        chain(*words, "--check", other, *command).expect(
            1, "check %s: FAILED" % other, reason)


if __name__ == "__main__":
    main(*sys.argv[1:])
