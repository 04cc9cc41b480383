# SPDX-License-Identifier: BSD-3-Clause
#
# What the tests of real clients share: the served disk of tests/root, and
# image files to copy.  None of these needs root.

import hashlib
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)),
                                "..", "root"))

from roottest import *
import roottest


def main(body):
    roottest.main(body, root=False)


def patchwork(path, size, seed):
    """A file of data, holes and written zeroes, in pieces of odd length."""
    rnd = random.Random(seed)
    with open(path, "wb") as f:
        f.truncate(size)
        at = 0
        while at < size:
            n = min(rnd.choice((4096, 65536, MiB)) * rnd.randrange(1, 9) +
                    512 * rnd.randrange(3), size - at)
            kind = rnd.choice(("data", "hole", "zero"))
            f.seek(at)
            if kind == "data":
                f.write(rnd.randbytes(n))
            elif kind == "zero":
                f.write(bytes(n))
            at += n
    return path


def old_data(path, size):
    """A file full of something else, so that a missing zero is seen."""
    with open(path, "wb") as f:
        for i in range(size // MiB):
            f.write(pattern(i, MiB))
        f.write(pattern(size, size % MiB))
    return path


def md5(path):
    with open(path, "rb") as f:
        return hashlib.file_digest(f, "md5").hexdigest()


__all__ = [n for n in dir() if not n.startswith("_")]
