#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the promise as people use it: nbdcopy --flush and qemu-img convert
# into a disk whose host loses the data must not end with success.  And the
# next copy to the same server does not either.

import sys

from roottest import *


def test(t):
    need("nbdcopy", "qemu-img")
    host = LossyHost(t, sys.argv[1])
    source = t.path("source")
    with open(source, "wb") as f:
        f.write(pattern(1, host.IMAGE))
    for first in 0, 1:
        # (qemu-img does not look at the result of its own last FLUSH.)
        copies = [["nbdcopy", "--flush", source],
                  ["qemu-img", "convert", "-n", "-t", "writethrough",
                   "-f", "raw", "-O", "raw", source]]
        s = t.server(host.image, "cache=barrier", *sys.argv[2:])
        if first:
            copies.reverse()
        for argv in copies + copies[:1]:
            rc = subprocess.run([*argv, s.uri], stdin=subprocess.DEVNULL,
                                stdout=subprocess.DEVNULL,
                                stderr=subprocess.DEVNULL).returncode
            assert rc != 0, argv[0] + " was told that its data is safe"
        s.connect()
        s.stop()
        s.expect_metric("ubd_lost_data", 1)


main(test)
