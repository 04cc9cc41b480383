#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/chain --check: what counts as proof, on records made by hand.

Each test begins with a record in which a guest's sync reached the disk, and
breaks it in one way.
"""

import copy
import os
import sys
import unittest
import xml.etree.ElementTree as ET

SOURCE = os.environ.get("UBD_SRC") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(SOURCE, "scripts"))

# pylint: disable=wrong-import-position
from chainlib import join, judge, picture, records, report  # noqa: E402
from chainlib.records import (BlockOp, GuestSync, HostSync, Request,  # noqa
                              Sync)

US = 1000
T0 = 10 ** 12  # Nothing happens in the first moment after the boot.
DISK, TID, IO_TID = 7340033, 71, 72


def at(us):
    return T0 + us * US


def request(number, kind, arrival, end, sync=None, fua=False, result=0,
            offset=0):
    return Request(number, 1, kind, offset, 4096 if kind != "flush" else 0,
                   fua, at(arrival), at(arrival + 1), at(end), result, sync)


def good_run(mode="barrier"):
    """A write of 10 to 20 us, a flush of 30 to 100, a guest's sync around."""
    run = records.Run(mode=mode, guest="uml", attach="vhost")
    run.disks = [records.WatchedDisk("loop9", DISK, True)]
    run.requests = [
        request(1, "write", 10, 20),
        request(2, "flush", 30, 100,
                Sync(1, "led", at(32), at(98), TID, 0))]
    run.host_syncs = [HostSync("fdatasync", at(33), at(97), TID, 0)]
    run.blocks = [
        BlockOp(DISK, "write", False, 8, 4096, at(40), at(50), 0, TID, "t"),
        BlockOp(DISK, "flush", False, 0, 0, at(60), at(90), 0, 5, "kworker")]
    run.guest_syncs = [GuestSync(1, "fsync", at(5), at(110), 0, "dd")]
    return run


def osync_run():
    """The write itself is durable; the flush costs nothing."""
    run = good_run("osync")
    run.requests = [
        request(1, "write", 30, 100,
                Sync(0, "write", at(32), at(98), TID, 0)),
        request(2, "flush", 102, 104, Sync(0, "none", 0, 0, 0, 0))]
    return run


def unsafe_run():
    run = good_run("unsafe")
    run.requests[1] = request(2, "flush", 30, 31,
                              Sync(0, "none", 0, 0, 0, 0))
    run.host_syncs, run.blocks = [], []
    return run


def without_server():
    run = good_run("")
    run.has_server, run.attach, run.requests = False, "ubd", []
    run.image_changes, run.sees_image_changes = [at(20)], True
    return run


def add_clean_flush(run, arrival=130):
    run.requests.append(request(9, "flush", arrival, arrival + 2,
                                Sync(1, "clean", 0, 0, 0, 0)))
    run.guest_syncs.append(GuestSync(2, "fsync", at(arrival - 5),
                                     at(arrival + 5), 0, "dd"))


class Base(unittest.TestCase):
    def holds(self, run, mode="barrier"):
        reasons = judge.Judge(run).check(mode)
        self.assertEqual(reasons, [])

    def refused(self, run, words, mode="barrier"):
        reasons = judge.Judge(run).check(mode)
        self.assertTrue(any(words in r for r in reasons),
                        "%r is not in %r" % (words, reasons))


class OneSync(Base):
    def test_a_sync_that_reached_the_disk_is_accepted(self):
        self.holds(good_run())

    def test_a_flush_answered_before_its_sync_completed_is_refused(self):
        run = good_run()
        run.requests[1].end = at(95)
        self.refused(run, "was answered before its sync completed")

    def test_a_missing_flush_of_the_disk_is_refused(self):
        run = good_run()
        del run.blocks[1]
        self.refused(run, "no flush of disk loop9 completed during")

    def test_a_reply_before_the_flush_of_the_disk_completed_is_refused(self):
        run = good_run()
        run.blocks[1].complete = at(105)
        self.refused(run, "no flush of disk loop9 completed during")

    def test_a_flush_of_the_disk_that_never_completed_is_refused(self):
        run = good_run()
        run.blocks[1].complete = 0
        self.refused(run, "no flush of disk loop9 completed during")

    def test_a_flush_issued_before_the_sync_began_is_refused(self):
        run = good_run()
        run.blocks[1].issue = at(25)
        self.refused(run, "no flush of disk loop9 completed during")

    def test_a_flush_of_another_disk_is_refused(self):
        run = good_run()
        run.blocks[1].disk = DISK + 1
        self.refused(run, "no flush of disk loop9 completed during")

    def test_a_flush_of_the_disk_that_failed_is_refused(self):
        run = good_run()
        run.blocks[1].error = -5
        self.refused(run, "the flush of disk loop9 failed")

    def test_a_flush_issued_before_the_data_had_arrived_is_refused(self):
        run = good_run()
        run.blocks[0].complete = at(70)
        self.refused(run, "flushed before a write of this sync had completed")

    def test_a_later_write_of_the_same_thread_is_another_syncs(self):
        run = good_run()
        run.requests[1].sync.completed = at(99)
        run.blocks.append(BlockOp(DISK, "write", False, 8, 4096, at(98),
                                  at(120), 0, TID, "t"))
        self.holds(run)

    def test_a_flush_after_the_host_sync_returned_is_not_its_own(self):
        run = good_run()
        run.host_syncs[0].exit = at(80)
        self.refused(run, "no flush of disk loop9 completed during")

    def test_a_second_disk_must_be_flushed_too(self):
        run = good_run()
        run.disks.append(records.WatchedDisk("sdb", DISK + 1, True))
        self.refused(run, "no flush of disk sdb completed during")

    def test_a_sync_that_the_kernel_did_not_see_is_refused(self):
        run = good_run()
        run.host_syncs = []
        self.refused(run, "the kernel saw no sync of the image")

    def test_a_sync_of_another_thread_is_not_this_one(self):
        run = good_run()
        run.host_syncs[0].tid = TID + 1
        self.refused(run, "the kernel saw no sync of the image")

    def test_a_ring_syncs_in_whatever_thread(self):
        run = good_run()
        run.host_syncs[0] = HostSync("io_uring fsync", at(33), at(97), 5, 0)
        self.holds(run)

    def test_a_host_sync_that_failed_is_refused(self):
        run = good_run()
        run.host_syncs[0].result = -5
        self.refused(run, "the kernel saw no sync of the image")
        run = good_run()
        run.requests[1].sync.result = -5
        self.refused(run, "the host's sync failed (-5)")

    def test_a_sync_that_failed_in_the_guest_is_no_proof(self):
        run = good_run()
        run.guest_syncs[0].result = -5
        self.refused(run, "the guest's fsync failed (-5)")

    def test_a_disk_without_a_volatile_cache_is_said_so(self):
        run = good_run()
        run.disks[0].volatile = False
        self.refused(run, "no volatile cache")

    def test_a_flush_outside_the_guests_syncs_counts_too(self):
        run = good_run()
        run.requests.append(request(3, "flush", 200, 210,
                                    Sync(0, "none", 0, 0, 0, 0)))
        self.refused(run, "1 of 2 NBD requests for durability")


class Vacuous(Base):
    def test_no_guest_sync_at_all_is_refused_in_every_mode(self):
        for mode, make in (("barrier", good_run), ("osync", osync_run),
                           ("unsafe", unsafe_run)):
            run = make()
            run.guest_syncs = []
            self.refused(run, "no guest sync at all", mode)

    def test_lost_events_are_refused_in_every_mode(self):
        for mode, make in (("barrier", good_run), ("osync", osync_run),
                           ("unsafe", unsafe_run)):
            run = make()
            run.problems = ["3 events of the kernel were lost"]
            self.refused(run, "3 events of the kernel were lost", mode)

    def test_syncs_with_nothing_to_do_prove_nothing(self):
        run = good_run()
        run.requests, run.host_syncs, run.blocks = [], [], []
        self.refused(run, "nothing is proven")


class Covered(Base):
    def test_a_clean_flush_after_a_proven_sync_is_accepted(self):
        run = good_run()
        add_clean_flush(run)
        self.holds(run)
        self.assertEqual(judge.Judge(run).timelines[1].fate, join.CLEAN)

    def test_a_clean_flush_with_a_write_since_is_refused(self):
        run = good_run()
        run.requests.append(request(3, "write", 115, 120))
        add_clean_flush(run)
        self.refused(run, "was acknowledged before it and no host sync covers")

    def test_a_clean_flush_without_an_earlier_sync_is_refused(self):
        run = good_run()
        run.requests = run.requests[:1]
        run.host_syncs = []
        add_clean_flush(run)
        self.refused(run, "called clean, but no host sync completed before")

    def test_a_clean_flush_before_that_sync_has_completed_is_refused(self):
        run = good_run()
        add_clean_flush(run, 60)
        run.requests.sort(key=lambda r: r.arrival)
        self.refused(run, "called clean, but no host sync completed before")

    def test_an_earlier_sync_that_is_not_proven_covers_nothing(self):
        run = good_run()
        run.blocks = []
        add_clean_flush(run)
        self.assertEqual(judge.Judge(run).timelines[1].fate, join.BROKEN)

    def joined(self, write_begin, write_end):
        """A flush that joined a sync which was submitted before it came."""
        run = good_run()
        run.requests.insert(1, request(3, "write", write_begin, write_end,
                                       offset=8192))
        run.requests.append(request(4, "flush", 50, 101, Sync(
            1, "joined", at(32), at(98), TID, 0)))
        return run

    def test_joining_a_running_sync_with_nothing_new_is_accepted(self):
        self.holds(self.joined(22, 29))

    def test_joining_a_sync_that_misses_a_write_is_refused(self):
        self.refused(self.joined(35, 45), "no host sync covers it")

    def test_a_write_under_way_at_the_submission_is_not_decided(self):
        self.refused(self.joined(28, 45), "it cannot be decided")

    def test_what_was_in_the_page_cache_at_the_submission_is_covered(self):
        run = self.joined(28, 45)
        run.cached_writes = [(at(31), 8192, 4096)]
        self.holds(run)
        run.cached_writes = [(at(31), 8192, 2048)]
        self.refused(run, "it cannot be decided")
        run.cached_writes = [(at(33), 8192, 4096)]
        self.refused(run, "it cannot be decided")

    def test_a_guest_that_sent_no_flush_with_data_left_is_refused(self):
        run = good_run()  # As ext2 does: the pages, and no flush.
        run.requests.append(request(3, "write", 122, 124))
        run.guest_syncs.append(GuestSync(2, "sync", at(120), at(130), 0, "sh"))
        self.refused(run, "the guest's sync sent no FLUSH, but the WRITE")

    def test_a_guest_that_sent_no_flush_with_nothing_left_is_accepted(self):
        run = good_run()
        run.guest_syncs.append(GuestSync(2, "sync", at(120), at(130), 0, "sh"))
        self.holds(run)

    def test_a_durable_write_covers_itself_and_nothing_else(self):
        run = good_run()
        run.requests[1] = request(2, "write", 30, 100, Sync(
            0, "write", at(32), at(98), TID, 0), True)
        run.requests = run.requests[1:]
        self.holds(run)
        run.requests.insert(0, request(1, "write", 10, 20))
        add_clean_flush(run)
        run.host_syncs[0] = HostSync("ext4 sync", at(33), at(97), TID, 0)
        run.sees_image_syncs = False
        self.refused(run, "no host sync")


class Modes(Base):
    def test_unsafe_without_any_host_sync_is_accepted(self):
        self.holds(unsafe_run(), "unsafe")

    def test_unsafe_is_not_barrier(self):
        self.refused(unsafe_run(), "FLUSH acknowledged, no host sync")

    def test_unsafe_with_a_sync_of_the_server_is_refused(self):
        self.refused(good_run(), "the server synced for 1 requests", "unsafe")

    def test_unsafe_with_a_sync_that_the_kernel_saw_is_refused(self):
        run = unsafe_run()
        run.host_syncs = [HostSync("fsync", at(22), at(24), TID, 0)]
        self.refused(run, "the kernel saw 1 syncs of the image", "unsafe")

    def test_unsafe_without_a_flush_shows_nothing(self):
        run = unsafe_run()
        del run.requests[1]
        self.refused(run, "nothing is shown", "unsafe")

    def test_osync_with_durable_writes_is_accepted(self):
        self.holds(osync_run(), "osync")

    def test_osync_may_leave_nothing_to_the_clients_flushes(self):
        run = osync_run()
        run.guest = ""
        run.guest_syncs = records.syncs_of_client(run.requests)
        self.holds(run, "osync")
        self.assertEqual([t.fate for t in judge.Judge(run).timelines],
                         [join.CLEAN])

    def test_osync_keeps_the_promise_of_barrier_as_well(self):
        self.holds(osync_run(), "barrier")

    def test_barrier_does_not_keep_the_promise_of_osync(self):
        self.refused(good_run(), "before they were on the disk", "osync")

    def test_osync_with_one_write_that_was_not_durable_is_refused(self):
        run = osync_run()
        run.requests.append(request(3, "write", 200, 210))
        self.refused(run, "1 changes were acknowledged before", "osync")

    def test_osync_with_a_trim_that_led_its_sync_is_accepted(self):
        run = osync_run()
        run.requests[0].kind, run.requests[0].sync.how = "trim", "led"
        run.requests[0].start = at(35)  # Its sync was the first it asked for.
        self.holds(run, "osync")

    def test_osync_with_a_trim_that_joined_too_early_is_refused(self):
        run = osync_run()
        run.requests[0].kind, run.requests[0].sync.how = "trim", "joined"
        run.requests[0].start = at(35)
        self.refused(run, "1 changes were acknowledged before", "osync")

    def test_osync_with_a_durable_write_but_no_flush_is_refused(self):
        run = osync_run()
        run.blocks = run.blocks[:1]
        self.refused(run, "no flush of disk loop9", "osync")


class WithoutServer(Base):
    def test_a_guest_that_syncs_the_image_itself_is_accepted(self):
        self.holds(without_server())

    def test_a_host_that_never_synced_is_said_so(self):
        run = without_server()
        run.host_syncs = []
        self.refused(run, "the guest flushed, the host never synced")

    def test_a_host_sync_without_a_flush_is_refused(self):
        run = without_server()
        run.blocks = []
        self.refused(run, "no flush of disk loop9")

    def test_nothing_new_since_the_last_host_sync_is_accepted(self):
        run = without_server()
        run.guest_syncs.append(GuestSync(2, "sync", at(120), at(130), 0, "sh"))
        self.holds(run)
        run.image_changes.append(at(115))
        self.refused(run, "the guest flushed, the host never synced")

    def test_a_last_host_sync_that_is_not_proven_covers_nothing(self):
        run = without_server()
        run.blocks = []
        run.guest_syncs = [GuestSync(1, "sync", at(120), at(130), 0, "sh")]
        self.refused(run, "the guest flushed, the host never synced")

    def test_an_image_that_was_never_written_to_needs_no_sync(self):
        run = without_server()
        run.host_syncs, run.image_changes = [], [at(500)]
        self.refused(run, "nothing is proven")
        self.assertEqual(judge.Judge(run).timelines[0].fate, join.NOTHING)


class Links(unittest.TestCase):
    def test_links_add_up_to_the_whole_sync(self):
        for make in (good_run, osync_run, unsafe_run, without_server):
            for line in judge.Judge(make()).timelines:
                self.assertEqual(sum(ns for _, ns in line.links), line.total)
                self.assertTrue(all(ns >= 0 for _, ns in line.links))

    def test_links_are_those_between_the_events(self):
        line = judge.Judge(good_run()).timelines[0]
        self.assertEqual(line.links, [
            ("guest → NBD", 25 * US), ("NBD → fdatasync", 2 * US),
            ("fdatasync → disk flush", 28 * US), ("disk flush", 30 * US),
            ("disk flush → fdatasync done", 8 * US),
            ("fdatasync → reply", 2 * US), ("reply → guest", 10 * US)])

    def test_joining_a_sync_that_runs_already_takes_no_time(self):
        run = good_run()
        run.requests[1].arrival = at(70)
        run.requests[1].sync.how = "joined"
        run.guest_syncs[0].begin = at(65)
        line = judge.Judge(run).timelines[0]
        self.assertEqual(line.links, [
            ("guest → NBD", 5 * US), ("NBD → fdatasync", 0),
            ("fdatasync → disk flush", 0), ("disk flush", 20 * US),
            ("disk flush → fdatasync done", 8 * US),
            ("fdatasync → reply", 2 * US), ("reply → guest", 10 * US)])

    def test_percentiles_are_values_that_occurred(self):
        values = list(range(100, 0, -1))
        self.assertEqual([join.percentile(values, p)
                          for p in (50, 90, 99, 100)], [50, 90, 99, 100])
        self.assertEqual(join.percentile([7], 50), 7)

    def test_a_missing_link_is_said_in_the_report(self):
        run = unsafe_run()
        text = report.text(run, judge.Judge(run).timelines, 3)
        self.assertIn("MISSING", text)
        self.assertIn("FLUSH acknowledged, no host sync", text)

    def test_a_picture_of_any_program_is_well_formed(self):
        run = good_run()
        run.guest_syncs[0].comm = "a<b&\"c'"
        text = picture.svg(run, judge.Judge(run).timelines)
        found = [e.text for e in ET.fromstring(text).iter()]
        self.assertIn("fsync (a<b&\"c')", found)

    def test_judging_changes_nothing(self):
        run = good_run()
        before = copy.deepcopy(run)
        judge.Judge(run).check("barrier")
        self.assertEqual(run, before)


if __name__ == "__main__":
    unittest.main()
