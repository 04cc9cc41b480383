#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# What each mode asks of the host, counted: the promises of policy.c and the
# rules D5, D6 and D8 of durability.h, on the wire and with both engines.  Each
# test names the rule it guards.

from ubdtest import *

FUA = nbd.CMD_FLAG_FUA
BLOCK = 4096


def metrics_after(t, script, *options):
    """Run @script(server, connection) on a fresh server; its last metrics."""
    img = t.image(data=pattern(64 * KiB), name="counted.img")
    server = t.serve(img, *options)
    script(server, server.connect())
    return server.stop()


def each_way(t, script, verify, mode="barrier"):
    """With both engines, and through the page cache and around it."""
    ways = [("cache=" + mode, "io=" + io) for io in engines()]
    if takes_direct(t.image(name="probe.img")):
        ways.append(("cache=" + mode, "direct=true"))
    for way in ways:
        m = metrics_after(t, script, *way)
        try:
            verify(m)
            equal(m("ubd_syncs_completed_total"), m.syncs, "syncs completed")
            equal(m("ubd_syncs_failed_total"), 0, "syncs failed")
            equal(m("ubd_lost_data"), 0, "lost data")
            for kind in ("read", "write", "trim", "zero", "flush"):
                equal(m("ubd_request_errors_total", kind=kind), 0, kind)
        except Failure as e:
            raise Failure(f"{' '.join(way)}: {e}") from None


def counted(syncs, clean=None):
    def verify(m):
        equal(m.syncs, syncs, "syncs submitted")
        if clean is not None:
            equal(m.clean, clean, "flushes answered without a sync")
        equal(m.merged, 0, "merged flushes, with one request at a time")
    return verify


# barrier

@test
def the_first_flush_syncs_even_if_nothing_was_written(t):
    # D6: whoever wrote the file before may have left it in the page cache.
    each_way(t, lambda s, h: h.flush(), counted(1, clean=0))


@test
def a_flush_after_a_write_is_one_sync(t):
    # D1 and D6.
    def script(_, h):
        for i in range(5):
            h.pwrite(bytes(BLOCK), i * BLOCK)
            h.flush()
    each_way(t, script, counted(5, clean=0))


@test
def a_flush_with_nothing_new_is_no_sync(t):
    # D6.
    def script(_, h):
        h.pwrite(bytes(BLOCK), 0)
        for _ in range(10):
            h.flush()
    each_way(t, script, counted(1, clean=9))


@test
def what_changes_nothing_does_not_make_a_flush_sync(t):
    # D8: only a change counts.
    def script(s, h):
        h.pwrite(bytes(BLOCK), 0)
        h.flush()
        h.pread(BLOCK, 0)
        h.cache(BLOCK, 0)
        e = s.connect(extents=True)
        e.block_status(BLOCK, 0, lambda *_: 0)
        h.flush()
    each_way(t, script, counted(1, clean=1))


@test
def zero_and_trim_are_changes(t):
    # D8.
    def script(_, h):
        h.flush()
        h.zero(BLOCK, 0)
        h.flush()
        h.trim(BLOCK, BLOCK)
        h.flush()
        h.zero(BLOCK, 3 * BLOCK, nbd.CMD_FLAG_NO_HOLE)
        h.flush()
    each_way(t, script, counted(4, clean=0))


@test
def many_writes_before_a_flush_are_one_sync(t):
    def script(_, h):
        for i in range(16):
            h.pwrite(bytes(BLOCK), i * BLOCK)
        h.flush()
    each_way(t, script, counted(1, clean=0))


@test
def a_fua_write_is_no_sync(t):
    # D5: one durable write (RWF_DSYNC).
    def script(_, h):
        for i in range(4):
            h.pwrite(bytes(BLOCK), i * BLOCK, FUA)

    def verify(m):
        counted(0, clean=0)(m)
        equal(m("ubd_fua_total", kind="write"), 4, "FUA writes")
        equal(m("ubd_volatile_bytes"), 0, "volatile bytes")
    each_way(t, script, verify)


@test
def a_fua_write_does_not_make_a_later_flush_sync(t):
    # D8: a durable write that succeeded does not count as a change.
    def script(_, h):
        h.flush()
        h.pwrite(bytes(BLOCK), 0, FUA)
        h.flush()
    each_way(t, script, counted(1, clean=1))


@test
def a_fua_write_does_not_stand_in_for_the_first_flush(t):
    # D6.
    def script(_, h):
        h.pwrite(bytes(BLOCK), 0, FUA)
        h.flush()
    each_way(t, script, counted(1, clean=0))


@test
def a_fua_write_does_not_cover_an_earlier_plain_write(t):
    # D1: RWF_DSYNC makes its own range durable and no other.
    def script(_, h):
        h.flush()
        h.pwrite(bytes(BLOCK), 0)
        h.pwrite(bytes(BLOCK), BLOCK, FUA)
        h.flush()
    each_way(t, script, counted(2, clean=0))


@test
def a_small_fua_write_is_no_sync(t):
    # The bounce of direct=true must keep the promise of the request.
    def script(_, h):
        h.flush()
        h.pwrite(b"x", 5, FUA)
        h.pwrite(b"y" * 700, BLOCK - 300, FUA)
        h.flush()
    each_way(t, script, counted(1, clean=1))


@test
def a_fua_zero_and_a_fua_trim_sync(t):
    # D5: RWF_DSYNC does not cover fallocate.
    def script(_, h):
        h.zero(BLOCK, 0, FUA)
        h.trim(BLOCK, BLOCK, FUA)

    def verify(m):
        counted(2)(m)
        equal(m("ubd_fua_total", kind="zero"), 1, "FUA zeroes")
        equal(m("ubd_fua_total", kind="trim"), 1, "FUA trims")
        equal(m("ubd_volatile_bytes"), 0, "volatile bytes")
    each_way(t, script, verify)


@test
def a_flush_covers_the_writes_of_other_connections(t):
    # D1: "on any connection"; D6: and then there is nothing left to do.
    def script(s, h):
        other = s.connect()
        h.pwrite(bytes(BLOCK), 0)
        other.flush()
        h.flush()
        other.pwrite(bytes(BLOCK), 0)
        h.flush()
        other.flush()
    each_way(t, script, counted(2, clean=2))


@test
def disconnecting_and_ending_are_no_flush(t):
    # FLUSH is what the client asks for; closing the export is not.
    def script(s, h):
        h.pwrite(bytes(BLOCK), 0)
        s.disconnect(h)
        s.connect().pread(BLOCK, 0)
    each_way(t, script, counted(0, clean=0))


# osync

@test
def osync_answers_flush_without_a_sync(t):
    def script(_, h):
        h.flush()
        for i in range(4):
            h.pwrite(bytes(BLOCK), i * BLOCK)
            h.flush()

    def verify(m):
        equal(m.syncs, 0, "syncs submitted")
        equal(m.flushes, 5, "flushes")
        equal(m("ubd_volatile_bytes"), 0, "volatile bytes")
    each_way(t, script, verify, mode="osync")


@test
def osync_syncs_after_each_zero_and_trim(t):
    # D5.
    def script(_, h):
        h.zero(BLOCK, 0)
        h.zero(BLOCK, BLOCK, nbd.CMD_FLAG_NO_HOLE)
        h.trim(BLOCK, 2 * BLOCK)
        h.flush()
    each_way(t, script, lambda m: equal(m.syncs, 3, "syncs"), mode="osync")


# unsafe

@test
def unsafe_never_syncs_and_counts_all_the_same(t):
    def script(_, h):
        check(h.can_flush(), "unsafe does not advertise FLUSH")
        check(h.can_fua(), "unsafe does not advertise FUA")
        h.flush()
        h.pwrite(bytes(BLOCK), 0)
        h.pwrite(bytes(BLOCK), BLOCK, FUA)
        h.zero(BLOCK, 0, FUA)
        h.trim(BLOCK, BLOCK, FUA)
        h.flush()

    def verify(m):
        equal(m.syncs, 0, "syncs submitted")
        equal(m.flushes, 2, "flushes")
        for kind in ("write", "zero", "trim"):
            equal(m("ubd_fua_total", kind=kind), 1, f"FUA {kind}")
    each_way(t, script, verify, mode="unsafe")


main()
