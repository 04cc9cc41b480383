#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# -r opens the file for reading only; a disk asked for read-write is never
# quietly served read-only.  Guards open_host_file(): no fallback.

from ubdtest import *


def accesses(server, img):
    return [f & os.O_ACCMODE for f in server.open_flags(img)]


@test
def read_only_opens_the_file_for_reading_only(t):
    img = t.image(data=pattern(4096))
    server = t.serve(img, nbdkit=("-r",))
    h = server.connect()
    equal(set(accesses(server, img)), {os.O_RDONLY}, "access of open files")
    check(h.is_read_only(), "the export does not say that it is read-only")
    same_bytes(h.pread(4096, 0), pattern(4096), "read")
    h.set_strict_mode(0)
    fails_with("EPERM", h.pwrite, bytes(512), 0)
    server.stop()
    same_bytes(read_file(img, 4096), pattern(4096), "the file")


@test
def every_spelling_of_read_only_is_understood(t):
    # nbdkit tells its plugins too late, when a client connects; so the plugin
    # looks for itself.
    img = t.image()
    os.chmod(img, 0o444)
    for options in (("-r",), ("-rv",), ("-vr",), ("--read-only",),
                    ("--readonly",), ("--read",), ("-t", "2", "-r"),
                    ("-t2", "-r"), ("--threads=2", "-r"),
                    ("--filter", "log", "-r"), ("-e", "name", "-r")):
        args = ("logfile=/dev/null",) if "log" in options else ()
        server = t.serve(img, *args, nbdkit=options)
        equal(set(accesses(server, img)), {os.O_RDONLY}, f"{options}")
        server.stop()
    # And behind the plugin's name, where nbdkit takes options as well.
    server = t.serve("-r", img)
    equal(set(accesses(server, img)), {os.O_RDONLY}, "-r behind the plugin")
    server.stop()


@test
def two_dashes_end_the_options(t):
    # What follows is no option, and the search for -r must end there.
    img = t.image()
    server = t.serve("--", img)
    equal(set(accesses(server, img)), {os.O_RDWR}, "-- behind the plugin")
    server.stop()
    server = t.serve("-r", "--", img)
    equal(set(accesses(server, img)), {os.O_RDONLY}, "-r before --")
    server.stop()


@test
def what_only_looks_like_r_is_not_read_only(t):
    img = t.image()
    for options in (("-e", "-r"), ("-e-r",), ("--exportname", "--readonly"),
                    ("--exportname=-r",)):
        server = t.serve(img, nbdkit=options)
        equal(set(accesses(server, img)), {os.O_RDWR}, f"{options}")
        server.stop()


@test
def writable_opens_the_file_for_reading_and_writing(t):
    # The number does not grow: each open file has its own memory of what it
    # has reported as lost (durability.h, D4).
    img = t.image()
    server = t.serve(img)
    nr = len(accesses(server, img))
    for _ in range(3):
        check(not server.connect().is_read_only(), "read-only")
    equal(accesses(server, img), [os.O_RDWR] * nr, "access of the open files")
    check(all(f & os.O_CLOEXEC for f in server.open_flags(img)),
          "children inherit the file")


@test
def a_file_that_cannot_be_written_is_an_error_that_says_to_use_r(t):
    img = t.image()
    os.chmod(img, 0o444)
    # The build folder may be closed to others; the test's own is not.
    so = shutil.copy(plugin(), t.path("nbdkit-ubd-plugin.so"))
    os.chmod(so, 0o755)
    user = {}
    if is_root():
        uid, gid = nobody()
        user = {"user": uid, "group": gid, "extra_groups": []}
        os.chmod(t.dir, 0o777)
    out = t.refuse(img, so=so, **user)
    mentions(out, os.path.basename(img), "-r", "denied")

    # And with -r the same user may read it.
    h = t.serve(img, so=so, nbdkit=("-r",), metrics=False, **user).connect()
    check(h.is_read_only(), "not read-only")
    equal(len(h.pread(4096, 0)), 4096, "bytes read")


@test
def a_file_that_cannot_be_read_is_an_error_that_names_it(t):
    img = t.image()
    os.chmod(img, 0)
    so = shutil.copy(plugin(), t.path("nbdkit-ubd-plugin.so"))
    os.chmod(so, 0o755)
    user = {}
    if is_root():
        uid, gid = nobody()
        user = {"user": uid, "group": gid, "extra_groups": []}
        os.chmod(t.dir, 0o777)
    mentions(t.refuse(img, so=so, nbdkit=("-r",), **user),
             os.path.basename(img), "denied")


@test
def a_read_only_block_device_is_an_error_that_says_to_use_r(t):
    device = t.loop(t.image(data=pattern(4096)), "--read-only")
    mentions(t.refuse(device.path), device.path, "-r")
    h = t.serve(device.path, nbdkit=("-r",)).connect()
    same_bytes(h.pread(4096, 0), pattern(4096), "read")


@test
def a_read_only_file_system_is_an_error_that_says_to_use_r(t):
    need_root("a bind mount")
    img = t.image(name="inner.img")
    seen = t.path("seen")
    os.mkdir(seen)
    inner = t.path("inner")
    os.mkdir(inner)
    os.rename(img, os.path.join(inner, "disk.img"))
    t.at_end(umount, seen)
    t.run(["mount", "--bind", inner, seen])
    t.run(["mount", "-o", "remount,bind,ro", seen])
    mentions(t.refuse(os.path.join(seen, "disk.img")), "disk.img", "-r")


main()
