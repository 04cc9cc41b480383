#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# WRITE_ZEROES is exact to the byte, takes any count, allocates with NO_HOLE,
# and FAST_ZERO is fast or refused at once.  Guards ubd_zero() and the fact that
# it must never leave the work to nbdkit, whose own fallback leaves stale data
# beyond 64 MiB (FACTS 3).

from ubdtest import *

NO_HOLE = nbd.CMD_FLAG_NO_HOLE
FAST = nbd.CMD_FLAG_FAST_ZERO
FUA = nbd.CMD_FLAG_FUA


def allocated(path):
    return os.stat(path).st_blocks * 512


def ways(t):
    found = [("io=" + io,) for io in engines()] + [("trim=false",)]
    if takes_direct(t.image(name="probe.img")):
        found.append(("direct=true",))
    return found


@test
def advertises_zero_and_fast_zero(t):
    h = t.serve(t.image()).connect()
    check(h.can_zero(), "no WRITE_ZEROES")
    check(h.can_fast_zero(), "no FAST_ZERO")


@test
def zero_is_exact_to_the_byte(t):
    size = 64 * KiB
    ranges = [(0, 1), (511, 2), (4095, 4098), (1, 4095), (4096, 4096),
              (3 * 4096 - 1, 2 * 4096 + 2), (size - 1, 1), (size - 5000, 5000),
              (7, size - 14), (0, size)]
    for way in ways(t):
        img = t.image(size)
        h = t.serve(img, *way).connect()
        for flags in (0, NO_HOLE, FUA, NO_HOLE | FUA):
            for offset, count in ranges:
                data = bytearray(pattern(size))
                h.pwrite(data, 0)
                h.zero(count, offset, flags)
                data[offset:offset + count] = bytes(count)
                same_bytes(h.pread(size, 0), data,
                           f"{way} flags={flags} {offset}+{count}")
        equal(os.stat(img).st_size, size, "length of the file")
        h.shutdown()
        t.servers[-1].stop()


@test
def zero_takes_counts_of_128_mib_and_more(t):
    # nbdcopy sends 128 MiB; the largest is what 32 bits hold.
    size = 300 * MiB
    marks = [0, 63 * MiB, 64 * MiB, 65 * MiB, 100 * MiB, 127 * MiB,
             128 * MiB, 130 * MiB, 200 * MiB, size - 4096]
    for way in ways(t):
        img = t.image(size)
        server = t.serve(img, *way)
        h = server.connect()
        for offset, count in ((MiB // 2, 128 * MiB), (1, 128 * MiB + 12345),
                              (0, size)):
            for at in marks:
                h.pwrite(b"m" * 4096, at)
            h.zero(count, offset)
            for at in marks:
                expected = bytes(0 if offset <= i < offset + count else 109
                                 for i in range(at, at + 4096))
                same_bytes(h.pread(4096, at), expected,
                           f"{way} {offset}+{count}: the mark at {at}")
        server.stop()
        equal(os.stat(img).st_size, size, f"{way}: length of the file")


@test
def zero_takes_the_largest_count_there_is(t):
    size = 4 << 30
    img = t.image(size)
    server = t.serve(img)
    h = server.connect()
    h.pwrite(b"a" * 4096, 0)
    h.pwrite(b"b" * 4096, 2 << 30)
    h.pwrite(b"c" * 4096, size - 4096)
    h.zero(0xffffffff, 0)
    for at in (0, 2 << 30):
        same_bytes(h.pread(4096, at), bytes(4096), f"at {at}")
    same_bytes(h.pread(4096, size - 4096), bytes(4095) + b"c", "last block")
    server.stop()


@test
def zero_with_no_hole_allocates(t):
    for way in ways(t):
        img = t.image(8 * MiB)
        server = t.serve(img, *way)
        h = server.connect()
        h.zero(4 * MiB, MiB, NO_HOLE)  # A hole until now.
        h.flush()
        check(allocated(img) >= 4 * MiB,
              f"{way}: {allocated(img)} bytes are allocated")
        same_bytes(h.pread(MiB, MiB), bytes(MiB), f"{way}: what it reads")

        h.pwrite(pattern(4 * MiB), MiB)
        h.zero(4 * MiB, MiB, NO_HOLE)  # Data until now.
        h.flush()
        check(allocated(img) >= 4 * MiB,
              f"{way}: {allocated(img)} bytes are left of the data")
        same_bytes(h.pread(MiB, 2 * MiB), bytes(MiB), f"{way}: what it reads")
        server.stop()


@test
def zero_may_free_blocks_and_with_trim_false_must_not(t):
    for way, keeps in (((), False), (("trim=false",), True)):
        img = t.image(8 * MiB, data=pattern(8 * MiB))
        t.run(["sync", "-d", img])
        before = allocated(img)
        server = t.serve(img, *way)
        h = server.connect()
        h.zero(4 * MiB, 0)
        h.flush()
        same_bytes(h.pread(MiB, 0), bytes(MiB), "what it reads")
        if keeps:
            check(allocated(img) >= before - 64 * KiB,
                  f"trim=false, but zero freed {before - allocated(img)}")
        else:
            check(allocated(img) <= before - 3 * MiB,
                  f"zero with trimming allowed kept all {allocated(img)}")
        server.stop()


@test
def fast_zero_succeeds_or_changes_nothing(t):
    size = MiB
    for way in ways(t):
        img = t.image(size)
        server = t.serve(img, *way)
        h = server.connect()
        for flags in (FAST, FAST | NO_HOLE, FAST | FUA):
            for offset, count in ((0, size), (4096, 65536), (1, 4095),
                                  (100, 200000), (size - 1, 1)):
                data = bytearray(pattern(size))
                h.pwrite(data, 0)
                try:
                    h.zero(count, offset, flags)
                    data[offset:offset + count] = bytes(count)
                except nbd.Error as e:
                    check(nbd_errno(e) in (errno.ENOTSUP, errno.EOPNOTSUPP),
                          f"{way} {offset}+{count}: {e}")
                same_bytes(h.pread(size, 0), data,
                           f"{way} flags={flags} {offset}+{count}")
        server.stop()


@test
def fast_zero_is_refused_where_zeroes_would_be_written(t):
    # A file system that can neither punch nor zero a range: the request must
    # be refused, the plain one must work.  ramfs has no fallocate at all.
    img = os.path.join(t.ramfs(), "disk.img")
    with open(img, "wb") as f:
        f.write(pattern(MiB))
    server = t.serve(img)
    h = server.connect()
    fails_with(("ENOTSUP", "EOPNOTSUPP"), h.zero, 65536, 4096, FAST)
    same_bytes(h.pread(MiB, 0), pattern(MiB), "after the refusal")
    expected = bytearray(pattern(MiB))
    for offset, count, flags in ((4096, 65536, 0), (100001, 5, NO_HOLE)):
        h.zero(count, offset, flags)
        expected[offset:offset + count] = bytes(count)
    same_bytes(h.pread(MiB, 0), expected, "after the plain zeroes")
    h.trim(65536, 500000)  # A hint; that nothing was freed is no error.
    h.flush()
    server.stop()
    equal(os.stat(img).st_size, MiB, "length of the file")


main()
