#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards against SIGXFSZ: a server that may not make files larger than so much
# (RLIMIT_FSIZE) gets that signal and EFBIG for a write beyond.  The client
# hears ENOSPC, the server lives, nothing is sticky, and writes below the limit
# go on.

import resource
import sys

from roottest import *

LIMIT = 2 * MiB


def test(t):
    image = t.sparse("disk.img", 8 * MiB)
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, old[1]))
    s = t.server(image, *sys.argv[1:])  # Inherits it.
    resource.setrlimit(resource.RLIMIT_FSIZE, old)
    h = s.connect()
    for flags in 0, nbd.CMD_FLAG_FUA:
        e = error_of(h.pwrite, pattern(1, 65536), 4 * MiB, flags)
        assert e == "ENOSPC", "a write beyond the limit: %s" % e
        e = error_of(h.pwrite, pattern(1, 65536), LIMIT - 4096, flags)
        assert e == "ENOSPC", "a write across the limit: %s" % e
        assert error_of(h.pwrite, pattern(2, 65536), 65536, flags) is None
        assert error_of(h.flush) is None
    assert h.pread(65536, 65536) == pattern(2, 65536)
    assert h.pread(65536, 4 * MiB) == bytes(65536)
    s.stop()
    s.expect_metric("ubd_lost_data", 0)


main(test)
