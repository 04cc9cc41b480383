#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# TRIM frees the whole blocks inside its range and touches nothing outside it;
# trim=false is not advertised.  Guards ubd_trim()'s rounding.

from ubdtest import *


def allocated(path):
    return os.stat(path).st_blocks * 512


@test
def trim_frees_blocks(t):
    for io in engines():
        img = t.image(data=pattern(8 * MiB))
        t.run(["sync", "-d", img])
        before = allocated(img)
        server = t.serve(img, "io=" + io)
        h = server.connect()
        check(h.can_trim(), "trim is not advertised")
        h.trim(4 * MiB, 2 * MiB)
        h.flush()
        check(allocated(img) <= before - 4 * MiB + 64 * KiB,
              f"io={io}: of {before} bytes {allocated(img)} are left")
        same_bytes(h.pread(2 * MiB, 0), pattern(8 * MiB)[:2 * MiB], "before")
        same_bytes(h.pread(2 * MiB, 6 * MiB), pattern(8 * MiB)[6 * MiB:],
                   "behind")
        server.stop()
        equal(os.stat(img).st_size, 8 * MiB, "length of the file")


@test
def trim_rounds_inward(t):
    size = 64 * KiB
    data = pattern(size)
    for options in ((), ("io=syscalls",)):
        for offset, count in ((1, size - 2), (4095, 8194), (4097, 4096),
                              (100, 200), (0, 1), (size - 1, 1)):
            img = t.image(data=data)
            server = t.serve(img, *options)
            h = server.connect()
            h.trim(count, offset)
            got = h.pread(size, 0)
            where = f"{options} {offset}+{count}"
            same_bytes(got[:offset], data[:offset], where + ": before")
            same_bytes(got[offset + count:], data[offset + count:],
                       where + ": behind")
            for i in range(offset, offset + count):
                if got[i] != data[i]:
                    equal(got[i], 0, f"{where}: byte {i}")
            server.stop()
            equal(os.stat(img).st_size, size, where + ": length of the file")


@test
def trim_takes_128_mib_and_more(t):
    size = 300 * MiB
    img = t.image(size)
    server = t.serve(img)
    h = server.connect()
    for at in (0, 128 * MiB, 200 * MiB, size - MiB):
        h.pwrite(b"d" * MiB, at)
    h.flush()
    h.trim(256 * MiB, 0)
    h.flush()
    check(allocated(img) <= MiB + 64 * KiB, f"{allocated(img)} are left")
    same_bytes(h.pread(MiB, size - MiB), b"d" * MiB, "behind")
    server.stop()


@test
def the_tail_of_an_odd_size_is_trimmed_without_changing_the_length(t):
    size = 64 * KiB + 321
    img = t.image(data=pattern(size))
    server = t.serve(img)
    h = server.connect()
    h.trim(size, 0)
    h.trim(321, 64 * KiB)
    got = h.pread(size, 0)
    check(all(g in (0, p) for g, p in zip(got, pattern(size))), "content")
    server.stop()
    equal(os.stat(img).st_size, size, "length of the file")


@test
def trim_false_is_not_advertised_and_frees_nothing(t):
    img = t.image(data=pattern(MiB))
    t.run(["sync", "-d", img])
    before = allocated(img)
    server = t.serve(img, "trim=false")
    h = server.connect()
    check(not h.can_trim(), "trim is advertised")
    h.set_strict_mode(0)
    try:
        h.trim(MiB, 0)
    except nbd.Error:
        pass
    same_bytes(h.pread(MiB, 0), pattern(MiB), "content")
    h.zero(MiB // 2, 0)
    h.flush()
    check(allocated(img) >= before - 64 * KiB, f"{allocated(img)} are left")
    server.stop()


@test
def after_a_trim_the_range_can_be_written_again(t):
    server = t.serve(t.image(data=pattern(MiB)))
    h = server.connect()
    h.trim(MiB, 0)
    h.pwrite(pattern(MiB, seed=2), 0)
    h.flush()
    same_bytes(h.pread(MiB, 0), pattern(MiB, seed=2), "content")
    server.stop()


main()
