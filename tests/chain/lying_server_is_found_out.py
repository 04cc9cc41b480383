#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""A server whose fdatasync does nothing says that it synced: the kernel's
events say that it did not."""

import os
import subprocess
import tempfile

import chaintest
from chaintest import chain

LIE = "int fdatasync(int fd) { (void)fd; return 0; }\n"


def main():
    chaintest.need("cc")
    words = ["--io", "syscalls", "--check", "barrier", "--", "/usr/bin/python3",
             "-c", chaintest.CLIENT]
    with tempfile.TemporaryDirectory() as folder:
        lie = os.path.join(folder, "lie.so")
        subprocess.run(["cc", "-shared", "-fPIC", "-o", lie, "-xc", "-"],
                       input=LIE, text=True, check=True)
        chain(*words).expect(0, "kept the promise")
        os.environ["LD_PRELOAD"] = lie
        try:
            result = chain(*words)
        finally:
            del os.environ["LD_PRELOAD"]
        result.expect(1, "DID NOT REACH THE DISK",
                      "FLUSH was acknowledged, but the kernel saw no sync of"
                      " the image")


if __name__ == "__main__":
    main()
