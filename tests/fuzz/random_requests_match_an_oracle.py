#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards every byte: thousands of random requests of every kind, with every
# flag, any alignment and length, right and wrong, on several connections, are
# answered as an oracle in memory says, and the image is the same at the end.
# The seed is new each time; a failure prints the line that replays it.

import os
import sys

sys.path.insert(0, os.path.join(os.environ["UBD_SRC"], "tests", "root"))

from roottest import *
from hosts import Host

OPERATIONS = int(os.environ.get("UBD_FUZZ_OPS", "9000"))


def test(t):
    name, args = sys.argv[1], sys.argv[2:]
    seed = int(os.environ.get("UBD_FUZZ_SEED",
                              int.from_bytes(os.urandom(4), "little")))
    # A file may end within a block; a block device cannot.
    size = 6 * MiB if name.startswith("block") else 6 * MiB + 1237
    host = Host(t, name, size)
    s = t.server(host.image, *args)
    with subprocess.Popen(
            [os.environ["UBD_NBD_FUZZ"], s.socket, host.image, str(seed),
             str(OPERATIONS), str(1 + seed % 8)], text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE) as p:
        t.cleanup.callback(p.kill)
        out, err = p.communicate()
    assert p.returncode == 0, "%s\nnbdkit: %s\nTo replay:\n  " \
        "UBD_FUZZ_SEED=%d UBD_FUZZ_OPS=%d scripts/test '%s'" % (
            err, s.messages()[-2000:], seed, OPERATIONS,
            " ".join(["random_requests_match_an_oracle"] + sys.argv[1:]))
    if s.greeting is None:
        s.greeting = s.messages()
    s.stop()
    s.expect_metric("ubd_lost_data", 0)
    total = 0
    for line in out.splitlines():
        kind, passed, slow = line.split()
        if kind == "extents" and host.is_block:
            passed = 0  # The host cannot tell; nbdkit answers.
        s.expect_metric('ubd_requests_total{kind="%s"}' % kind, int(passed))
        s.expect_metric('ubd_request_errors_total{kind="%s"}' % kind,
                        int(slow))
        total += int(passed)
    assert total > OPERATIONS * 0.8, "only %d requests got through" % total
    print("seed %d: %d requests" % (seed, OPERATIONS))


main(test)
