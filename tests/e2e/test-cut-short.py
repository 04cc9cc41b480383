#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# The size is fixed at start.  If somebody cuts the file short underneath, what
# is gone is EIO, what is left is served, and the server neither ends nor loops.
# Guards "0 bytes read is the end of the file" in the io layer.

from ubdtest import *

SIZE = MiB
LEFT = 256 * KiB


def ways(t):
    found = [("io=" + io,) for io in engines()]
    if takes_direct(t.image(name="probe.img")):
        found += [("direct=true", "io=" + io) for io in engines()]
    return found


@test
def what_is_cut_off_is_eio_and_the_rest_is_served(t):
    for way in ways(t):
        img = t.image(data=pattern(SIZE))
        server = t.serve(img, *way)
        h = server.connect()
        h.pread(4096, SIZE - 4096)
        os.truncate(img, LEFT)
        for offset, count in ((LEFT, 4096), (SIZE - 4096, 4096), (LEFT, 1),
                              (LEFT - 4096, 8192), (LEFT - 5, 10), (0, SIZE),
                              (SIZE - 1, 1)):
            fails_with("EIO", h.pread, count, offset)
        equal(h.get_size(), SIZE, f"{way}: size")
        equal(server.connect().get_size(), SIZE, f"{way}: size, seen anew")
        same_bytes(h.pread(LEFT, 0), pattern(SIZE)[:LEFT], f"{way}: the rest")
        h.pwrite(b"n" * 4096, 0)
        h.flush()
        same_bytes(h.pread(4096, 0), b"n" * 4096, f"{way}: the new")
        server.stop()


@test
def every_request_beyond_the_new_end_is_answered(t):
    # With success or an error, as the host likes; but answered.
    for way in ways(t):
        img = t.image(data=pattern(SIZE))
        server = t.serve(img, *way)
        h = server.connect(extents=True)
        for call in (
                lambda: h.block_status(SIZE, 0, lambda *_: 0),
                lambda: h.block_status(4096, SIZE - 4096, lambda *_: 0),
                lambda: h.cache(4096, SIZE - 4096),
                lambda: h.trim(4096, SIZE - 8192),
                lambda: h.zero(4096, SIZE - 8192),
                lambda: h.zero(100, SIZE - 100),
                lambda: h.zero(4096, SIZE - 8192, nbd.CMD_FLAG_NO_HOLE),
                lambda: h.pwrite(b"w" * 100, SIZE - 5000),
                lambda: h.pwrite(b"w" * 4096, SIZE - 4096),
                lambda: h.pwrite(b"w" * 4096, LEFT - 2048)):
            os.truncate(img, LEFT)
            try:
                call()
            except nbd.Error as e:
                check(nbd_errno(e) in (errno.EIO, errno.ENOTSUP), str(e))
            check(server.alive(), f"{way}: the server has ended")
        os.truncate(img, LEFT)
        same_bytes(h.pread(4096, 0), pattern(SIZE)[:4096], f"{way}: the rest")
        server.stop()


@test
def what_is_cut_off_is_not_called_zero(t):
    # A client that copies by extents would skip it and never see the EIO.
    img = t.image(data=pattern(SIZE))
    server = t.serve(img)
    h = server.connect(extents=True)
    os.truncate(img, LEFT)
    found = []

    def collect(_context, start, entries, _error):
        for length, state in zip(entries[::2], entries[1::2]):
            found.append((start, length, state))
            start += length
        return 0

    for offset in (0, LEFT - 4096, LEFT, SIZE - 4096):
        found.clear()
        try:
            h.block_status(SIZE - offset, offset, collect)
        except nbd.Error as e:
            equal(nbd_errno(e), errno.EIO, str(e))
        for start, length, state in found:
            check(state & 2 == 0 or start + length <= LEFT,
                  f"{start}+{length} reads as zeroes, it says; what is left "
                  f"ends at {LEFT}")
    check(server.alive(), "the server has ended")
    server.stop()


@test
def a_file_that_grows_keeps_its_size_for_the_client(t):
    img = t.image(data=pattern(64 * KiB))
    server = t.serve(img)
    h = server.connect()
    os.truncate(img, SIZE)
    equal(server.connect().get_size(), 64 * KiB, "size")
    same_bytes(h.pread(64 * KiB, 0), pattern(64 * KiB), "content")
    h.zero(64 * KiB, 0)
    h.flush()
    server.stop()
    equal(os.stat(img).st_size, SIZE, "length of the file")


@test
def a_cut_to_nothing_is_survived(t):
    for way in ways(t):
        img = t.image(data=pattern(SIZE))
        server = t.serve(img, *way)
        h = server.connect()
        os.truncate(img, 0)
        fails_with("EIO", h.pread, 4096, 0)
        fails_with("EIO", h.pread, SIZE, 0)
        h.flush()
        server.stop()


main()
