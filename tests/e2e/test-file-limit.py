#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# A limit on the size of files (ulimit -f) is ENOSPC for the client and does not
# kill the server with SIGXFSZ; nothing acknowledged is lost by it.  Guards the
# mapping of EFBIG and the signal's disposition.

import resource

from ubdtest import *

LIMIT = MiB


def limited():
    resource.setrlimit(resource.RLIMIT_FSIZE, (LIMIT, LIMIT))


def ways():
    return [(f"cache={mode}", f"io={io}") for mode in MODES
            for io in engines()]


@test
def a_write_beyond_the_limit_is_enospc_and_the_server_lives(t):
    for way in ways():
        img = t.image(4 * MiB)
        server = t.serve(img, *way, preexec_fn=limited)
        h = server.connect()
        h.pwrite(b"a" * 4096, 0)
        for flags in (0, nbd.CMD_FLAG_FUA):
            fails_with("ENOSPC", h.pwrite, b"x" * 4096, 2 * MiB, flags)
            check(server.alive(), f"{way}: the server was killed")
        h.pwrite(b"b" * 4096, LIMIT - 4096)
        h.pwrite(b"c" * 4096, 4096, nbd.CMD_FLAG_FUA)
        h.flush()  # It lost nothing that was acknowledged: not sticky (D7).
        same_bytes(h.pread(12288, 0), b"a" * 4096 + b"c" * 4096 + bytes(4096),
                   f"{way}: content")
        m = server.stop()
        equal(m("ubd_lost_data"), 0, f"{way}: lost data")
        equal(m("ubd_request_errors_total", kind="write"), 2, f"{way}: errors")


@test
def a_write_across_the_limit_fails_as_a_whole(t):
    for way in ways()[:2]:
        img = t.image(4 * MiB)
        server = t.serve(img, *way, preexec_fn=limited)
        h = server.connect()
        fails_with("ENOSPC", h.pwrite, b"x" * 8192, LIMIT - 4096)
        check(server.alive(), f"{way}: the server was killed")
        h.flush()
        server.stop()


@test
def zero_and_trim_beyond_the_limit_are_answered(t):
    for way in ways()[:2]:
        img = t.image(4 * MiB)
        server = t.serve(img, *way, preexec_fn=limited)
        h = server.connect()
        for call in (lambda: h.zero(65536, 2 * MiB),
                     lambda: h.zero(65536, 2 * MiB, nbd.CMD_FLAG_NO_HOLE),
                     lambda: h.zero(100, 2 * MiB + 7),
                     lambda: h.trim(65536, 2 * MiB)):
            try:
                call()
            except nbd.Error as e:
                equal(nbd_errno(e), errno.ENOSPC, f"{way}: {e}")
            check(server.alive(), f"{way}: the server was killed")
        h.flush()
        server.stop()
        equal(os.stat(img).st_size, 4 * MiB, "length of the file")


main()
