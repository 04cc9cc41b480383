#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards lock=: UML takes a classic fcntl lock (F_SETLK, whole file, exclusive
# if writable) on its images.  A disk that a UML has open is refused, naming
# the file; UML is refused a disk that is served; lock=false overrides; and
# two readers are fine.

import fcntl

from toolstest import *


def try_lock(image, kind):
    """In a process of its own, as classic locks belong to processes."""
    return subprocess.run(
        [sys.executable, "-c", "import fcntl, os, sys\n"
         "kind = sys.argv[2]\n"
         "fd = os.open(sys.argv[1], os.O_RDWR)\n"
         "try:\n"
         "    fcntl.lockf(fd, getattr(fcntl, kind) | fcntl.LOCK_NB)\n"
         "except (BlockingIOError, PermissionError):\n"
         "    sys.exit(3)\n", image, kind]).returncode == 0


def refused(t, image, *args, nbdkit=()):
    p = subprocess.run(["nbdkit", "-s", *nbdkit, t.plugin, "file=" + image,
                        *args], stdin=subprocess.DEVNULL, text=True,
                       stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if p.returncode == 0:
        return False
    lines = p.stderr.strip().splitlines()
    assert len(lines) == 1, p.stderr
    assert image in lines[0] and "lock" in lines[0], p.stderr
    return True


def test(t):
    image = t.sparse("disk.img", MiB)

    # This process is the UML: it must not open the image a second time.
    with open(image, "r+b") as uml:
        fcntl.lockf(uml, fcntl.LOCK_EX | fcntl.LOCK_NB)
        assert refused(t, image), "served a disk that a UML has open"
        assert refused(t, image, nbdkit=("-r",)), "-r: a UML writes to it"
        assert not refused(t, image, "lock=false")
        fcntl.lockf(uml, fcntl.LOCK_UN)
        fcntl.lockf(uml, fcntl.LOCK_SH | fcntl.LOCK_NB)
        assert refused(t, image), "writable, and a UML reads it"
        assert not refused(t, image, nbdkit=("-r",)), "two readers"

    s = t.server(image, *sys.argv[1:])
    h = s.connect()
    h.pwrite(pattern(1, 4096), 0)
    assert not try_lock(image, "LOCK_EX"), "UML got a served disk"
    assert not try_lock(image, "LOCK_SH"), "UML got a served disk, read-only"
    # Connections come and go; the lock stays.
    s.connect().shutdown()
    s.handles.pop()
    assert not try_lock(image, "LOCK_EX"), "the lock went with a connection"
    s.stop()
    assert try_lock(image, "LOCK_EX"), "still locked after the end"

    s = t.server(image, *sys.argv[1:], nbdkit=("-r",))
    s.connect()
    assert not try_lock(image, "LOCK_EX")
    assert try_lock(image, "LOCK_SH"), "two readers"
    s.stop()

    s = t.server(image, "lock=false", *sys.argv[1:])
    s.connect()
    assert try_lock(image, "LOCK_EX"), "lock=false, and it is locked"
    s.stop()


main(test)
