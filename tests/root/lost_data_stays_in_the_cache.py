#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards "only what is durable may be discarded" for evict: a stream whose
# write-out failed is nowhere but in the host's page cache, and there it stays:
# clients go on reading what they wrote.

import sys
import time

from roottest import *


def test(t):
    host = LossyHost(t, sys.argv[1])
    s = t.server(host.image, *sys.argv[2:])
    h = s.connect()
    data = pattern(1, 8 * MiB)
    for at in range(0, len(data), MiB):
        h.pwrite(data[at:at + MiB], 4 * MiB + at)
    end = time.monotonic() + 20
    while not (os.path.exists(s.metrics_file) and
               "\nubd_lost_data 1\n" in open(s.metrics_file).read()):
        assert time.monotonic() < end, "a loss that no metric tells of"
        time.sleep(0.01)
    got = h.pread(len(data), 4 * MiB)
    wrong = sum(got[i:i + 4096] != data[i:i + 4096]
                for i in range(0, len(data), 4096))
    assert wrong == 0, "%d of %d pages read back as something else" % (
        wrong, len(data) // 4096)
    assert error_of(h.flush) in ("EIO", "ENOSPC")
    s.stop()


main(test)
