#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# A parameter that cannot be understood is an error that names the parameter,
# what was given and what was expected; qemu's names of the modes are aliases.
# Guards the table of parameters and its parsers.

from ubdtest import *


@test
def a_typo_in_the_mode_lists_the_valid_names(t):
    img = t.image()
    for typo in ("barier", "", "BARRIERS", "writebak", "barrier "):
        out = t.refuse(img, "cache=" + typo)
        mentions(out, "cache", typo.strip(), *MODES)


@test
def a_typo_in_io_lists_the_valid_names(t):
    out = t.refuse(t.image(), "io=uring")
    mentions(out, "io", "uring", "auto", "io_uring", "syscalls")


@test
def a_bad_boolean_names_the_parameter_and_the_value(t):
    img = t.image()
    for key in ("direct", "lock", "trim"):
        for value in ("maybe", "", "2"):
            mentions(t.refuse(img, f"{key}={value}"), key, value)


@test
def an_unknown_parameter_is_named(t):
    mentions(t.refuse(t.image(), "cahce=barrier"), "cahce")


@test
def a_parameter_given_twice_is_refused(t):
    # Whichever of the two was meant, the other would be silently ignored.
    img = t.image()
    for one, two in (("cache=barrier", "cache=unsafe"),
                     ("io=auto", "io=syscalls"),
                     ("direct=false", "direct=true")):
        mentions(t.refuse(img, one, two), one.split("=")[0])


@test
def direct_false_beside_an_alias_that_means_direct_is_refused(t):
    img = t.image()
    for alias in ("none", "directsync"):
        for args in ((f"cache={alias}", "direct=false"),
                     ("direct=false", f"cache={alias}")):
            mentions(t.refuse(img, *args), "direct", alias)


@test
def an_error_is_one_line(t):
    img = t.image()
    for args in (("cache=barier",), ("io=x",), ("direct=x",), ("nothing=x",)):
        out = t.refuse(img, *args).strip()
        equal(len(out.splitlines()), 1, f"lines of {out!r}")


@test
def names_of_qemu_are_aliases(t):
    direct = takes_direct(t.image())
    for alias, mode, is_direct in (("writeback", "barrier", False),
                                   ("writethrough", "osync", False),
                                   ("none", "barrier", True),
                                   ("directsync", "osync", True)):
        if is_direct and not direct:
            continue
        img = t.image(name=alias + ".img")
        server = t.serve(img, "cache=" + alias)
        flags = server.open_flags(img)
        equal(any(f & os.O_DIRECT for f in flags), is_direct,
              f"O_DIRECT with cache={alias}")
        m = server.stop()
        check(m.find("ubd_info", mode=mode),
              f"cache={alias} is not mode {mode}: {m.find('ubd_info')}")


@test
def every_mode_is_accepted_and_printed_once_at_start(t):
    for mode in MODES:
        server = t.serve(t.image(name=mode + ".img"), "cache=" + mode)
        lines = [line for line in server.log().splitlines() if mode in line]
        equal(len(lines), 1, f"lines that name {mode} in {server.log()!r}")
        if mode == "unsafe":
            mentions(lines[0], "power")
        server.stop()


@test
def the_default_is_barrier(t):
    m = t.serve(t.image()).stop()
    check(m.find("ubd_info", mode="barrier"), str(m.find("ubd_info")))


@test
def direct_is_refused_where_the_file_system_cannot(t):
    need_root("a mount of ramfs, which has no O_DIRECT")
    mounted = t.ramfs()
    img = os.path.join(mounted, "disk.img")
    with open(img, "wb") as f:
        f.truncate(MiB)
    if takes_direct(img):
        raise Skip("this kernel's ramfs has O_DIRECT")
    mentions(t.refuse(img, "direct=true"), "direct", img)
    mentions(t.refuse(img, "cache=none"), "direct", img)
    t.serve(img).stop()


main()
