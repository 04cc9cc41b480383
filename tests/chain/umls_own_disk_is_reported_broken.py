#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""UML 6.1's ubd never passes a flush on; with O_SYNC it needs none."""

import chaintest
from chaintest import chain


def main():
    chaintest.need("cc", "linux.uml", "busybox")
    words = ["--guest", "uml", "--timeout", "200"]
    load = ["--", chaintest.GUEST_LOAD]
    chain(*words, "--attach", "ubd", "--check", "barrier", *load).expect(
        1, "done in the guest", "never caused a host sync",
        "guest syncs did not reach the disk",
        ": the guest flushed, the host never synced")
    chain(*words, "--attach", "ubds", "--check", "osync", *load).expect(
        0, "done in the guest", "guest syncs kept the promise")


if __name__ == "__main__":
    main()
