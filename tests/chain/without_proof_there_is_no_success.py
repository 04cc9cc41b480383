#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A run that shows nothing fails the check: no sync, or a hole in the record,
or a command that failed."""

import chaintest
from chaintest import chain


def main():
    chaintest.need()
    client = ["--", "/usr/bin/python3", "-c", chaintest.CLIENT]
    for mode in ("barrier", "osync", "unsafe"):
        words = ["--cache", mode, "--check", mode]
        chain(*words, "--", "true").expect(
            1, "FAILED: there was no client sync at all")
        chain(*words, "--limit", "0", *client).expect(
            1, "FAILED: the record has a hole: the recording was full")
    failing = client[:-1] + [chaintest.CLIENT + "\nraise SystemExit(3)"]
    chain("--check", "barrier", *failing).expect(
        1, "FAILED: the command ended with status 3")
    # Without a check the status is the command's own.
    chain(*failing).expect(3, "reached the disk")


if __name__ == "__main__":
    main()
