#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards "a feature that was asked for and is missing is an error": ramfs
# refuses O_DIRECT.  The server says so in one line that names the parameter,
# at start, and does not serve the disk some other way.

from hosts import *


def test(t):
    host = Host(t, "ramfs", MiB)
    for args in ("direct=true",), ("cache=none",):
        p = subprocess.run(["nbdkit", "-s", t.plugin, "file=" + host.image,
                            *args], stdin=subprocess.DEVNULL, text=True,
                           stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        assert p.returncode != 0, "served without O_DIRECT"
        lines = p.stderr.strip().splitlines()
        assert len(lines) == 1 and "disk.img" in lines[0], p.stderr
        assert "direct=" in lines[0] or "cache=" in lines[0], \
            "it does not name the parameter to change: " + p.stderr


main(test)
