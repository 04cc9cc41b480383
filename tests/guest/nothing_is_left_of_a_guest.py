#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# However scripts/guest ends, its processes, mounts, network and files are
# gone: after its command, when the time is up, and after SIGINT, SIGTERM and
# SIGKILL.  A process is known by the name of the image or of the test's folder
# in its words, or by the guest's token in its environment.

from guesttest import *
import time


def owned(token):
    """Processes that have @token in their environment: all of a guest's."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/environ" % pid, "rb") as f:
                if token.encode() in f.read():
                    found.append(int(pid))
        except OSError:
            continue
    return [p for p in found if p != os.getpid()]


def links():
    return set(os.listdir("/sys/class/net"))


def mounts():
    with open("/proc/self/mountinfo") as f:
        return sorted(line.split()[4] for line in f)


def gone(token):
    """Poll: after SIGKILL the kernel ends the others a little later."""
    end = time.monotonic() + 60
    while left := owned(token):
        assert time.monotonic() < end, "left behind: %s" % [
            open("/proc/%d/cmdline" % p).read() for p in left]
        time.sleep(0.01)


def test(t):
    kind, attach = sys.argv[1:]
    need_guest(kind, attach)
    image = t.sparse("disk.img", 8 * MiB)
    before = links(), mounts()
    for name in "HOME", "TMPDIR":  # UML would write to both.
        os.environ[name] = t.path(name)
        os.mkdir(os.environ[name])
    words = ("--attach", attach, "--disk", image)
    stay = "echo here; sleep 1000"

    def kill_all(token):
        for pid in owned(token):
            os.kill(pid, signal.SIGKILL)

    def start(token, *more, run=stay):
        t.cleanup.callback(kill_all, token)
        os.environ["UBD_TEST_TOKEN"] = token
        g = Guest(t, kind, *words, *more, run=run)
        del os.environ["UBD_TEST_TOKEN"]
        return g

    for how in (signal.SIGKILL, signal.SIGTERM, signal.SIGINT):
        token = "ubd-guest-%s-%d" % (how.name, os.getpid())
        g = start(token)
        assert next(g.lines()) == "here", g.err()
        assert len(owned(token)) >= 3, "script, server and guest"
        g.process.send_signal(how)
        status = g.process.wait()
        assert status == (-9 if how == signal.SIGKILL else 128 + how), status
        if how != signal.SIGKILL:  # It has waited for them.
            assert owned(token) == [], how.name
        gone(token)
    token = "ubd-guest-time-%d" % os.getpid()
    g = start(token, "--timeout", "5")
    status, _ = g.wait()
    assert status == 124 and "time is up" in g.err(), g.err()
    assert owned(token) == []
    start(token, run="true").finish()
    assert owned(token) == []
    assert (links(), mounts()) == before
    for name in "HOME", "TMPDIR":
        assert os.listdir(os.environ[name]) == [], name
    # The image is free again: its lock went with the server.
    s = t.server(image)
    s.connect()
    s.stop()


main(test)
