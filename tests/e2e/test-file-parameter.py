#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# file= is a regular file or a block device.  Anything else is refused at
# start, at once, with the path and the reason, and nothing is made or changed.
# Guards the check of the file's type before anything can block (a FIFO blocks
# in open(2)) and the parser of file=.

import os
import socket

from ubdtest import *


MISSING = ("no such file", "does not exist")


def snapshot(folder):
    """Name, kind and size of everything below @folder."""
    found = {}
    for where, folders, files in os.walk(folder):
        for name in folders + files:
            st = os.lstat(os.path.join(where, name))
            found[os.path.join(where, name)] = (st.st_mode, st.st_size,
                                                st.st_rdev)
    return found


def refused(t, path, *reasons, nbdkit=(), args=()):
    """The words of one of the @reasons must be in the message."""
    before = snapshot(t.dir)
    for parameter in (path, "file=" + path):
        out = t.refuse(parameter, *args, nbdkit=nbdkit)
        check(any(r.lower() in out.lower() for r in reasons),
              f"none of {reasons} is in: {out!r}")
        mentions(out, os.path.basename(path) or "file")
        check(len(out.strip().splitlines()) == 1,
              f"more than one line of error: {out!r}")
    equal(snapshot(t.dir), before, "the folder after the refusal")


@test
def refuses_a_fifo_at_once(t):
    path = t.path("a-fifo")
    os.mkfifo(path)
    for options in ((), ("-r",)):
        refused(t, path, "fifo", "pipe", nbdkit=options)


@test
def refuses_a_directory(t):
    path = t.path("a-folder")
    os.mkdir(path)
    for options in ((), ("-r",)):
        refused(t, path, "directory", nbdkit=options)


@test
def refuses_a_socket(t):
    path = t.path("a-socket")
    with socket.socket(socket.AF_UNIX) as s:
        s.bind(path)
        for options in ((), ("-r",)):
            refused(t, path, "socket", nbdkit=options)


@test
def refuses_a_character_device(t):
    for path in ("/dev/null", "/dev/zero"):
        for options in ((), ("-r",)):
            refused(t, path, "character", nbdkit=options)
    check(stat.S_ISCHR(os.stat("/dev/null").st_mode), "/dev/null is gone")


@test
def refuses_a_missing_file_and_does_not_create_it(t):
    for options in ((), ("-r",)):
        refused(t, t.path("missing.img"), *MISSING, nbdkit=options)
    refused(t, t.path("missing-folder", "missing.img"), *MISSING)


@test
def refuses_a_dangling_link_and_does_not_create_its_target(t):
    path = t.path("a-link")
    os.symlink(t.path("nothing-there"), path)
    refused(t, path, *MISSING, "dangling")


@test
def refuses_a_loop_of_links(t):
    os.symlink(t.path("b"), t.path("a"))
    os.symlink(t.path("a"), t.path("b"))
    refused(t, t.path("a"), "symbolic link", "loop")


@test
def refuses_a_path_through_a_file(t):
    inside = os.path.join(t.image(), "disk.img")
    refused(t, inside, "not a directory")


@test
def refuses_a_name_that_is_too_long(t):
    refused(t, t.path("x" * 300), "too long")


@test
def follows_a_link_to_an_image(t):
    data = pattern(4096)
    os.symlink(t.image(data=data), t.path("a-link"))
    h = t.serve("file=" + t.path("a-link")).connect()
    same_bytes(h.pread(4096, 0), data, "read through the link")


@test
def refuses_an_empty_name(t):
    out = t.refuse("file=")
    mentions(out, "file", "empty")


@test
def refuses_to_start_without_a_file(t):
    mentions(t.refuse(), "file")


@test
def refuses_a_file_given_twice(t):
    one = t.image(name="one.img")
    two = t.image(name="two.img")
    for args in ((one, "file=" + two), ("file=" + one, "file=" + two),
                 ("file=" + one, "file=" + one)):
        out = t.refuse(*args)
        mentions(out, "file")
        check(any(w in out.lower() for w in ("twice", "more than once",
                                             "already", "once")),
              f"does not say that file= was given twice: {out!r}")


@test
def serves_an_empty_file(t):
    h = t.serve(t.image(0)).connect()
    equal(h.get_size(), 0, "size")
    h.flush()


main()
