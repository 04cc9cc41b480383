#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# The same promises as test-sync-counts.py, counted where they count: by the
# block device below.  Guards against a metric that is right while the host was
# never asked.  Needs root for a loop device.

from ubdtest import *

FUA = nbd.CMD_FLAG_FUA
BLOCK = 4096


def flushes_of(t, mode, script, *options):
    """Flushes that the device saw from @script, and until the server ended."""
    device = t.loop(t.image(4 * MiB, name=t.new_path("backing")))
    server = t.serve(device.path, "cache=" + mode, *options)
    before = device.flushes()
    script(server.connect())
    during = device.flushes() - before
    m = server.stop()
    return during, device.flushes() - before, m


@test
def each_flush_after_a_write_reaches_the_device_in_barrier(t):
    def script(h):
        for i in range(6):
            h.pwrite(bytes(BLOCK), i * BLOCK)
            h.flush()
            h.flush()
    for io in engines():
        during, _, m = flushes_of(t, "barrier", script, "io=" + io)
        equal(during, 6, f"io={io}: flushes of the device")
        equal(m.syncs, 6, f"io={io}: the metric")


@test
def each_fua_write_reaches_the_device_in_barrier(t):
    def script(h):
        for i in range(6):
            h.pwrite(bytes(BLOCK), i * BLOCK, FUA)
    for io in engines():
        during, _, _ = flushes_of(t, "barrier", script, "io=" + io)
        equal(during, 6, f"io={io}: flushes of the device")


@test
def each_change_reaches_the_device_in_osync_and_no_flush_does(t):
    def script(h):
        h.flush()
        for i in range(4):
            h.pwrite(bytes(BLOCK), i * BLOCK)
            h.flush()
        h.zero(BLOCK, 0)
        h.trim(BLOCK, BLOCK)
    for io in engines():
        during, _, _ = flushes_of(t, "osync", script, "io=" + io)
        equal(during, 6, f"io={io}: flushes of the device")


@test
def nothing_reaches_the_device_in_unsafe_not_even_at_exit(t):
    def script(h):
        for i in range(6):
            h.pwrite(bytes(BLOCK), i * BLOCK, FUA)
            h.zero(BLOCK, MiB, FUA)
            h.flush()
    for io in engines():
        during, after, _ = flushes_of(t, "unsafe", script, "io=" + io)
        equal(during, 0, f"io={io}: flushes of the device")
        equal(after, 0, f"io={io}: flushes of the device after the exit")


@test
def reads_reach_the_device_with_no_flush(t):
    def script(h):
        for i in range(6):
            h.pread(BLOCK, i * BLOCK)
    during, after, _ = flushes_of(t, "barrier", script)
    equal((during, after), (0, 0), "flushes of the device")


main()
