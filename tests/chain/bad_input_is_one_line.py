#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Wrong words end in one line that names them, and leave nothing."""

import os
import tempfile

from chaintest import chain, fail

RUN = ["--", "true"]
CASES = (
    ([], "expected -- CMD"),
    (["--disk", "missing.img", *RUN], "no image 'missing.img'"),
    (["--disk", ".", *RUN], "is a folder"),
    (["--disk", "d.img", "--private-disk", "ext4", *RUN],
     "--disk and --private-disk do not go together"),
    (["--disk", "d.img", "--size", "64M", *RUN],
     "--disk and --size do not go together"),
    (["--private-disk", "fat", *RUN], "'fat'"),
    (["--size", "1x", *RUN], "'1x': expected a size"),
    (["--size", "1", *RUN], "'1': expected a size"),
    (["--cache", "fast", *RUN], "'fast'"),
    (["--check", "fast", *RUN], "'fast'"),
    (["--io", "magic", *RUN], "'magic'"),
    (["--guest", "vm", *RUN], "'vm'"),
    (["--guest", "uml", "--attach", "virtio", *RUN],
     "--attach 'virtio': for uml expected vhost, nbd, ubd, ubds"),
    (["--attach", "vhost", *RUN], "--attach needs --guest"),
    (["--client-cache", "none", *RUN], "--client-cache needs --guest"),
    (["--guest", "uml", "--attach", "ubd", "--cache", "osync", *RUN],
     "--cache: --attach ubd uses no server"),
    (["--guest", "uml", "--attach", "ubd", "--plugin", "direct=true", *RUN],
     "--plugin: --attach ubd uses no server"),
    (["--plugin", "cache=osync", *RUN], "is set by scripts/chain itself"),
    (["--plugin", "word", *RUN], "'word': expected name=value"),
    (["--html", "none/x.html", *RUN], "--html 'none/x.html': expected"),
    (["--csv", ".", *RUN], "--csv '.': expected"),
    (["--show", "-1", *RUN], "--show"),
    (["--timeout", "0", *RUN], "'0': expected seconds"),
    (["--unknown", *RUN], "--unknown"),
)


def main():
    with tempfile.TemporaryDirectory() as folder:
        image = os.path.join(folder, "d.img")
        with open(image, "wb") as f:
            f.truncate(1 << 20)
        os.environ["TMPDIR"] = folder
        for words, expected in CASES:
            result = chain(*words, folder=folder).expect(2, expected)
            if result.err.count("\n") != 1 or result.out:
                fail("%r: not one line: %r" % (words, result.err + result.out))
        if os.listdir(folder) != ["d.img"]:
            fail("left behind: %r" % os.listdir(folder))
    if os.geteuid() == 0:
        refused_by_the_server()


def refused_by_the_server():
    """What the plugin refuses is its message, in our line."""
    result = chain("--plugin", "nonsense=1", "--", "true")
    if result.status == 2 and "needs " not in result.err:
        result.expect(2, "the server did not start", "nonsense")
        if result.err.count("\n") != 1:
            fail("not one line: %r" % result.err)


if __name__ == "__main__":
    main()
