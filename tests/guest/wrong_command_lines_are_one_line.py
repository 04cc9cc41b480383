#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# What cannot be done is said in one line that names what was given and what
# was expected, before anything is started or made.

from guesttest import *


def refused(t, words, *mentions):
    p = subprocess.run([SCRIPT, *words], stdin=subprocess.DEVNULL, text=True,
                       stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                       cwd=t.dir, check=False)
    what = "%s: %s" % (words, p.stderr)
    assert p.returncode == 2 and p.stdout == "", what
    assert p.stderr.count("\n") == 1 and p.stderr.endswith("\n"), what
    for word in mentions:
        assert word in p.stderr, "no %r in %s" % (word, what)


def test(t):
    need_guest("uml")
    need_guest("qemu")
    with open(t.path("i.img"), "w") as f:
        f.write("mine")
    os.symlink("i.img", t.path("same.img"))
    go = ["--run", "true"]
    refused(t, [], "uml|qemu")
    refused(t, ["xen", *go], "xen", "uml", "qemu")
    refused(t, ["uml"], "--run", "--shell")
    refused(t, ["uml", "--shell"], "terminal")
    refused(t, ["uml", "--shell", *go], "--run and --shell")
    refused(t, ["uml", "--colour", *go], "--colour")
    refused(t, ["uml", "--disk", "no.img", *go], "no.img", "--create")
    refused(t, ["uml", "--disk", t.dir, *go], "folder")
    refused(t, ["uml", "--disk", "no/i.img", "--create", "1M", *go], "no")
    refused(t, ["uml", "--disk", "i.img", "--create", "1M", *go],
            "i.img", "exists")
    refused(t, ["uml", "--disk", "i.img", "--disk", "same.img", *go], "twice")
    refused(t, ["uml", "--create", "1M", *go], "--create", "--disk")
    refused(t, ["uml", "--disk", "n.img", "--create", "many", *go], "many")
    refused(t, ["uml", "--disk", "n.img", "--create", "0", *go], "0")
    refused(t, ["uml", "--cache", "osync", *go], "--cache")
    refused(t, ["uml", "--disk", "i.img", "--attach", "virtio", *go],
            "virtio", "vhost, nbd, ubd, ubds")
    refused(t, ["qemu", "--disk", "i.img", "--attach", "ubd", *go],
            "ubd", "virtio, nbd, raw")
    refused(t, ["uml", "--disk", "i.img", "--attach", "ubd", "--cache",
                "osync", *go], "--cache", "no server")
    refused(t, ["uml", "--disk", "i.img", "--client-cache", "none", *go],
            "--client-cache")
    refused(t, ["qemu", "--disk", "i.img", "--client-cache", "some", *go],
            "some", "writeback")
    refused(t, ["uml", "--disk", "i.img", "--plugin", "metrics", *go],
            "metrics", "name=value")
    refused(t, ["uml", "--disk", "i.img", "--socket", "s", *go], "--socket")
    refused(t, ["uml", "--socket", "s", *go], "'s'")
    refused(t, ["uml", "--share", "no", *go], "no")
    refused(t, ["uml", "--timeout", "soon", *go], "soon")
    refused(t, ["uml", "--mem", "1M", *go], "64M")
    assert sorted(os.listdir(t.dir)) == ["i.img", "same.img"]
    with open(t.path("i.img")) as f:
        assert f.read() == "mine"


main(test)
