#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards what the server advertises: flush, FUA, several connections, trim,
# zero, fast zero, cache and extents; the map of data and holes; the list of
# exports; and that -r and trim=false take away what they should.

import json

from toolstest import *

ALWAYS = "can_flush", "can_fua", "can_multi_conn", "can_cache"
CHANGES = "can_trim", "can_zero", "can_fast_zero"


def export(s):
    exports = json.loads(run("nbdinfo", "--json", s.uri))["exports"]
    assert len(exports) == 1
    return exports[0]


def test(t):
    need("nbdinfo")
    size = 8 * MiB
    image = t.sparse("disk.img", size)
    with open(image, "r+b") as f:
        f.seek(MiB)
        f.write(pattern(1, 2 * MiB))
        f.seek(6 * MiB)
        f.write(pattern(2, MiB))
        os.fsync(f.fileno())

    s = t.server(image, *sys.argv[1:])
    e = export(s)
    assert e["export-size"] == size and not e["is_read_only"]
    for flag in ALWAYS + CHANGES:
        assert e[flag], flag
    assert "base:allocation" in e["contexts"]
    got = json.loads(run("nbdinfo", "--map", "--json", s.uri))
    got = [(m["offset"], m["length"], m["type"]) for m in got]
    assert got == [(0, MiB, 3), (MiB, 2 * MiB, 0), (3 * MiB, 3 * MiB, 3),
                   (6 * MiB, MiB, 0), (7 * MiB, MiB, 3)], got
    listed = json.loads(run("nbdinfo", "--list", "--json", s.uri))["exports"]
    assert [x["export-size"] for x in listed] == [size]
    assert run("nbdinfo", "--size", s.uri).strip() == str(size)
    s.stop()

    s = t.server(image, "trim=false", *sys.argv[1:])
    e = export(s)
    assert not e["can_trim"] and e["can_zero"] and e["can_fast_zero"]
    s.stop()

    s = t.server(image, *sys.argv[1:], nbdkit=("-r",))
    e = export(s)
    assert e["is_read_only"] and e["can_multi_conn"] and e["can_cache"]
    for flag in CHANGES:
        assert not e[flag], flag
    s.stop()


main(test)
