#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# scripts/guest prints what the command printed, byte by byte, on the same
# stream, and nothing else; and exits with its status.

from guesttest import *


def test(t):
    kind = sys.argv[1]
    need_guest(kind)
    g = Guest(t, kind, "--run", r"printf 'a\r\n\001\377\tb'; echo err >&2",
              "--run", "seq 20000", "--run", "exit 7", "--run", "echo never",
              "--share", t.dir)
    out = g.process.stdout.read()
    assert g.process.wait() == 7, g.err()
    want = b"a\r\n\x01\xff\tb" + b"".join(b"%d\n" % i
                                           for i in range(1, 20001))
    assert out == want, "%d bytes instead of %d" % (len(out), len(want))
    assert g.err() == "err\n", g.err()
    if kind == "qemu":  # The rest is the same code, in a guest that starts
        return          # more quickly.
    out = guest(t, kind, "--keep-going", "--share", t.dir, "--run", "exit 5",
                "--run", "echo two", "--run", "echo three >/share/three",
                "--run", "exit 6", status=5)
    assert out == "two\n", out
    with open(t.path("three")) as f:
        assert f.read() == "three\n"
    # Without a server, its status is that of a guest that was not started.
    out = Guest(t, kind, "--disk", t.path("i.img"), "--create", "1M",
                "--plugin", "colour=blue", run="true")
    assert out.wait() == (125, ""), out.err()
    assert "colour" in out.err() and out.err().count("\n") == 1, out.err()
    assert not os.path.exists(t.path("i.img")), "the new image is left"
    # A guest that crashes is told from a command that fails.
    out = Guest(t, kind, run="echo 1 >/proc/sys/kernel/sysrq; "
                "echo c >/proc/sysrq-trigger; sleep 1000")
    assert out.wait()[0] == 125, out.err()
    assert "ended before" in out.err().splitlines()[-1], out.err()


main(test)
