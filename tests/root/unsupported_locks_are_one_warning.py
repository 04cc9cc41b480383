#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards "locks unsupported by the file system: one warning": the disk is
# served, for reading and for writing, and the warning names the file.  A lock
# that somebody holds is no such case, and is refused.

from tinyfuse import *


def test(t):
    for e in (errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS):
        host = TinyFuse(t, MiB, lock_errno=e)
        for flags in (), ("-r",):
            s = t.server(host.image, nbdkit=flags)
            h, other = s.connect(), s.connect()
            if not flags:
                h.pwrite(pattern(e, 4096), 4096)
                h.flush()
            assert other.pread(4096, 4096) == pattern(e, 4096)
            s.stop()
            w = log_lines(s.messages(), r"\block")
            assert len(w) == 1 and "disk.img" in w[0], \
                "%s: %s" % (errno.errorcode[e], s.messages())

    host = TinyFuse(t, MiB, lock_errno=errno.EAGAIN)
    p = subprocess.run(["nbdkit", "-s", t.plugin, "file=" + host.image],
                       stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                       stderr=subprocess.PIPE, text=True)
    assert p.returncode != 0, "served although somebody has the lock"
    assert "disk.img" in p.stderr and "lock" in p.stderr, p.stderr


main(test)
