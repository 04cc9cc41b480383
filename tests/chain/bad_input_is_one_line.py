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
        refused_later()


def refused_later():
    """Also what only turns out later, in a run or after it."""
    for words, expected in (
            (["--plugin", "nonsense=1"], "nonsense"),
            (["--csv", "/dev/full"], "--csv '/dev/full': No space left"),
            (["--disk", "/dev/null"], "no disk is under '/dev/null'"),
            (["--disk", "/proc/version"], "no disk is under '/proc/version'")):
        result = chain(*words, *RUN)
        if any(w in result.err for w in (
                "needs root", "needs the host's", "cannot mount",
                "cannot make", "losetup")):
            continue  # No kernel events here; that is one line as well.
        result.expect(2, expected)
        if result.err.count("\n") != 1:
            fail("not one line: %r" % result.err)


if __name__ == "__main__":
    main()
