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
    for key in ("direct", "evict", "lock", "trim"):
        for value in ("maybe", "", "2"):
            mentions(t.refuse(img, f"{key}={value}"), key, value)


@test
def a_bad_size_names_the_parameter_and_the_value(t):
    img = t.image()
    for value in ("abc", "", "-1", "+1M", " 1M", "1M ", "1.5M", "64X", "64MB",
                  "0x100000", "M", "16E", "9223372036854775808",
                  "18446744073709551616", "99999999999999999999999G"):
        mentions(t.refuse(img, f"dirty-limit={value}"), "dirty-limit",
                 value.strip(), "64M")


@test
def a_dirty_limit_below_the_smallest_names_it(t):
    img = t.image()
    for value in ("1", "1K", "1023K", "1048575"):
        mentions(t.refuse(img, f"dirty-limit={value}"), "dirty-limit", value,
                 "1M")


@test
def sizes_with_and_without_a_suffix_mean_what_they_say(t):
    # A limit of 1 MiB shows, as the rest of three must have been written out;
    # and a large one, as a stream this short is left alone.
    for value in ("1M", "1m", "1024K", "1024k", "1048576", "1048576b"):
        server = t.serve(t.image(3 * MiB), f"dirty-limit={value}")
        server.connect().pwrite(b"s" * (3 * MiB), 0)
        m = server.stop()
        check(m("ubd_writeout_bytes_total") >= MiB,
              f"dirty-limit={value}: {m('ubd_writeout_bytes_total')} bytes "
              "were written out")
    for value in ("0", "0M", "64M", "1G", "7E", "9223372036854775807"):
        server = t.serve(t.image(3 * MiB), f"dirty-limit={value}")
        server.connect().pwrite(b"s" * (3 * MiB), 0)
        equal(server.stop()("ubd_writeout_bytes_total"), 0,
              f"dirty-limit={value}: bytes written out")


@test
def an_unknown_parameter_is_named(t):
    mentions(t.refuse(t.image(), "cahce=barrier"), "cahce")


@test
def a_parameter_given_twice_is_refused(t):
    # Whichever of the two was meant, the other would be silently ignored.
    img = t.image()
    for one, two in (("cache=barrier", "cache=unsafe"),
                     ("io=auto", "io=syscalls"),
                     ("direct=false", "direct=true"),
                     ("dirty-limit=0", "dirty-limit=1M"),
                     ("evict=true", "evict=false")):
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
    for args in (("cache=barier",), ("io=x",), ("direct=x",), ("evict=x",),
                 ("dirty-limit=x",), ("dirty-limit=1K",), ("nothing=x",)):
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
