#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/chain: its readers, on small records of real runs, some broken."""

import json
import os
import struct
import sys
import unittest

SOURCE = os.environ.get("UBD_SRC") or os.path.join(
    os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(SOURCE, "scripts"))

# pylint: disable=wrong-import-position
from chainlib import kernel, records, ringbuffer, tracefs  # noqa: E402

HERE = os.path.dirname(os.path.abspath(__file__))
HEAD = ('{"ubd_trace":1,"clock":"monotonic","file":"d.img","mode":"barrier",'
        '"engine":"io_uring","direct":false,"pid":7,"start":1}')
WRITE = ('{"id":1,"conn":1,"kind":"write","offset":4096,"length":512,'
         '"flags":[],"arrival":10,"start":11,"end":20,"result":0,"sync":null}')
FLUSH = ('{"id":2,"conn":1,"kind":"flush","offset":0,"length":0,"flags":[],'
         '"arrival":30,"start":32,"end":99,"result":0,"sync":{"id":1,'
         '"how":"led","submitted":32,"completed":98,"tid":71,"result":0}}')
FUA = ('{"id":3,"conn":2,"kind":"write","offset":0,"length":512,"flags":'
       '["fua"],"arrival":5,"start":6,"end":9,"result":-28,"sync":null}')
END = '{"end":200,"records":%d,"dropped":%d}'
WATCH = '{"ubd_watch":1,"clock":"tsc","disk":"/dev/vda"}'
SYNCED = ('{"kind":"fsync","begin":%d,"end":%d,"tid":9,"result":0,'
          '"ours":%s,"comm":"dd"}')


def fsync_record():
    with open(os.path.join(HERE, "data", "fsync.json"),
              encoding="utf-8") as f:
        return json.load(f)


def events_of(record):
    formats = {}
    for name, lines in record["formats"].items():
        layout = ringbuffer.Format(name, "\n".join(lines))
        formats[layout.number] = layout
    events, gaps = [], 0
    for cpu, page in record["pages"]:
        found, gap = ringbuffer.page_events(bytes.fromhex(page), cpu, formats)
        events += found
        gaps += gap
    return sorted(events, key=lambda e: e.ns), gaps


class RingBuffer(unittest.TestCase):
    def setUp(self):
        self.record = fsync_record()
        self.events, self.gaps = events_of(self.record)

    def test_every_event_is_there_at_its_time_and_place(self):
        """The same as in the kernel's own text, which rounds to 1 us."""
        got = [[(e.ns + 500) // 1000, e.cpu, e["common_pid"]]
               for e in self.events]
        want = [row[:3] for row in self.record["expected"]]
        self.assertEqual(len(want), 15)
        self.assertEqual(got, want)
        self.assertEqual(self.gaps, 0)

    def test_fields_are_as_the_kernel_prints_them(self):
        for event, row in zip(self.events, self.record["expected"]):
            if event.name == "block_rq_issue":
                disk = "%d,%d" % (event["dev"] >> 20, event["dev"] & 0xfffff)
                self.assertTrue(row[4].startswith("%s %s %d () %d + %d " % (
                    disk, event["rwbs"], event["bytes"], event["sector"],
                    event["nr_sector"])), row[4])
                self.assertIn("[%s]" % event["comm"], row[4])

    def test_a_page_that_follows_lost_events_is_noticed(self):
        cpu, page = self.record["pages"][0]
        raw = bytearray.fromhex(page)
        commit, = struct.unpack_from("<Q", raw, 8)
        struct.pack_into("<Q", raw, 8, commit | 1 << 31)
        self.record["pages"][0] = [cpu, raw.hex()]
        events, gaps = events_of(self.record)
        self.assertEqual((len(events), gaps), (15, 1))

    def test_times_go_on_after_long_silence(self):
        layout = ringbuffer.Format(
            "e", "ID: 7\n\tfield:unsigned short common_type;\toffset:0;"
            "\tsize:2;\tsigned:0;")
        silence, pause = 10 ** 10, 30  # More than 27 bits of nanoseconds.
        body = struct.pack("<IHH", 1 | 5 << 5, 7, 0)
        body += struct.pack("<II", 30 | (silence & 0x7ffffff) << 5,
                            silence >> 27)
        body += struct.pack("<IHH", 1 | pause << 5, 7, 0)
        body += struct.pack("<IIHHI", 0 | pause << 5, 12, 7, 0, 0)
        page = struct.pack("<QQ", 1000, len(body)) + body + b"junk" * 4
        events, _ = ringbuffer.page_events(page, 0, {7: layout})
        self.assertEqual([e.ns for e in events],
                         [1005, 1035 + silence, 1065 + silence])


class Kernel(unittest.TestCase):
    def setUp(self):
        self.events, _ = events_of(fsync_record())

    def test_requests_are_paired_from_issue_to_completion(self):
        ops = kernel.block_ops(self.events)
        self.assertEqual([(o.kind, o.bytes) for o in ops], [
            ("write", 8192), ("write", 4096), ("flush", 0), ("write", 1024),
            ("flush", 0)])
        for op in ops:
            self.assertLess(op.issue, op.complete)
            self.assertEqual(op.error, 0)
        # One flush is out of the way before the next is issued.
        self.assertLess(ops[2].complete, ops[4].issue)

    def test_a_call_and_the_file_systems_part_are_one_sync(self):
        syncs = kernel.host_syncs(self.events, True)
        self.assertEqual([(s.call, s.result) for s in syncs], [("fsync", 0)])
        self.assertEqual(syncs[0].enter, self.events[0].ns)
        self.assertEqual(syncs[0].exit, self.events[-1].ns)

    def test_a_sync_of_another_file_is_not_the_images(self):
        others = [e for e in self.events if not e.name.startswith("ext4")]
        self.assertEqual(kernel.host_syncs(others, True), [])
        self.assertEqual(len(kernel.host_syncs(others, False)), 1)

    def test_a_durable_write_has_the_file_systems_part_only(self):
        parts = [e for e in self.events if not e.name.startswith("sys_")]
        syncs = kernel.host_syncs(parts, True)
        self.assertEqual([s.call for s in syncs], ["ext4 sync"])

    def test_a_durable_write_during_a_rings_fsync_is_not_lost(self):
        class Made(dict):
            def __init__(self, ns, name, **more):
                super().__init__(more)
                self.ns, self.name = ns, name

        syncs = kernel.host_syncs([
            Made(1, "io_uring_submit_req", req=7, common_pid=1),
            Made(2, "ext4_sync_file_enter", common_pid=8),  # The FSYNC's.
            Made(3, "ext4_sync_file_enter", common_pid=9),  # A write's.
            Made(4, "ext4_sync_file_exit", common_pid=9, ret=0),
            Made(5, "ext4_sync_file_exit", common_pid=8, ret=0),
            Made(6, "io_uring_complete", req=7, common_pid=1, res=0)], True)
        self.assertEqual([(s.call, s.enter, s.exit, s.tid) for s in syncs], [
            ("io_uring fsync", 1, 6, 1), ("ext4 sync", 2, 5, 8),
            ("ext4 sync", 3, 4, 9)])

    def test_fsyncs_of_rings_that_overlap_are_all_seen(self):
        class Made(dict):
            def __init__(self, ns, name, **more):
                super().__init__(more)
                self.ns, self.name = ns, name

        events = [Made(k, "io_uring_submit_req", req=k, common_pid=k)
                  for k in (1, 2)]
        events += [Made(k, "ext4_sync_file_enter", common_pid=k)
                   for k in (8, 9)]
        events += [Made(k + 2, "ext4_sync_file_exit", common_pid=k, ret=0)
                   for k in (8, 9)]
        events += [Made(k + 20, "io_uring_complete", req=k, res=0,
                        common_pid=k)
                   for k in (1, 2)]
        rings = [s.tid for s in kernel.host_syncs(events, True)
                 if s.call == "io_uring fsync"]
        self.assertEqual(rings, [1, 2])

    def test_of_two_flushes_the_older_one_completes_first(self):
        class Made(dict):
            def __init__(self, ns, way):
                super().__init__(dev=9, rwbs="FF", sector=0, bytes=0, error=0,
                                 common_pid=1, comm="k", nr_sector=0)
                self.ns, self.name = ns, "block_rq_" + way

        ops = kernel.block_ops([Made(1, "issue"), Made(2, "issue"),
                                Made(3, "complete"), Made(4, "complete")])
        self.assertEqual([(o.issue, o.complete) for o in ops],
                         [(1, 3), (2, 4)])

    def test_letters_of_block_requests(self):
        for letters, want in (("FF", ("flush", False)), ("WS", ("write", False)),
                              ("WFS", ("write", True)), ("D", ("discard", False)),
                              ("FWFSM", ("write", True)), ("RA", ("read", False)),
                              ("FWS", ("write", False))):
            self.assertEqual(kernel.block_kind(letters), want, letters)


class PluginTrace(unittest.TestCase):
    def test_a_whole_trace_is_read_in_the_order_of_arrival(self):
        text = "\n".join([HEAD, WRITE, FLUSH, FUA, END % (3, 0)])
        head, requests, problems = records.parse_plugin_trace(text)
        self.assertEqual(head["mode"], "barrier")
        self.assertEqual([r.id for r in requests], [3, 1, 2])
        self.assertEqual(problems, [])
        self.assertEqual(requests[2].sync,
                         records.Sync(1, "led", 32, 98, 71, 0))
        self.assertEqual([r.asks_for_durability for r in requests],
                         [True, False, True])
        # A write that failed changed nothing that was acknowledged.
        self.assertEqual([r.is_change for r in requests],
                         [False, True, False])

    def test_holes_are_problems(self):
        for lines, words in (
                ([HEAD, WRITE], "no end"),
                ([HEAD, WRITE, END % (2, 0)], "says 2 records and has 1"),
                ([HEAD, WRITE, END % (1, 4)], "dropped 4 records")):
            _, _, problems = records.parse_plugin_trace("\n".join(lines))
            self.assertEqual(len(problems), 1)
            self.assertIn(words, problems[0])

    def test_what_is_no_trace_is_said_in_one_line(self):
        for text, words in (
                ("", "is empty"), ("hello", "line 1: not JSON"),
                (WRITE, "line 1: expected \"ubd_trace\":1"),
                (HEAD.replace("monotonic", "realtime"), "realtime"),
                (HEAD + "\n" + WRITE[:40], "line 2: not JSON"),
                (HEAD + "\n[1]", "line 2: expected an object"),
                (HEAD + "\n" + WRITE.replace("arrival", "x"),
                 "line 2: no usable 'arrival'")):
            with self.assertRaises(records.BadTrace) as caught:
                records.parse_plugin_trace(text)
            self.assertIn(words, str(caught.exception))
            self.assertNotIn("\n", str(caught.exception))


class GuestRecord(unittest.TestCase):
    def test_syncs_of_other_disks_are_counted_apart(self):
        text = "\n".join([WATCH, '{"error_tsc":50}', SYNCED % (1, 2, "true"),
                          SYNCED % (3, 4, "false"),
                          '{"end":1,"records":2,"lost":0}'])
        syncs, probes, cost, others, problems = \
            records.parse_guest_record(text)
        self.assertEqual([(s.begin, s.end) for s in syncs], [(1, 2)])
        self.assertEqual((probes, cost, others, problems), ([], 50, 1, []))

    def test_holes_are_problems(self):
        for last, words in (("", "has no end"), (
                '{"end":1,"records":9,"lost":3}', "lost 3 syncs")):
            problems = records.parse_guest_record(
                "\n".join([WATCH, SYNCED % (1, 2, "true"), last]))[4]
            self.assertEqual(len(problems), 1)
            self.assertIn(words, problems[0])

    def test_the_counter_becomes_nanoseconds(self):
        clock = records.TscClock({"tsc": 1000, "ns": 10 ** 9, "width_tsc": 40},
                                 {"tsc": 3000, "ns": 10 ** 9 + 1000,
                                  "width_tsc": 100})
        self.assertEqual(clock.ns(2000), 10 ** 9 + 500)
        self.assertEqual(clock.length(300), 150)
        self.assertEqual(clock.error, 26)

    def test_probes_find_how_far_the_guests_counter_is_off(self):
        shift = 123456789
        clock = records.TscClock({"tsc": 0, "ns": 0, "width_tsc": 0},
                                 {"tsc": 1000, "ns": 1000, "width_tsc": 0})
        calls = [(5000 * k + 700, 5000 * k + 900) for k in range(8)]
        probes = [(c[0] - 30 * (k + 1) - shift, c[1] + 60 - 5 * k - shift)
                  for k, c in enumerate(calls)]
        # Somebody else's calls before, between none, and after.
        all_calls = [(10, 20), (90, 95)] + calls + [(10 ** 6, 10 ** 6 + 5)]
        found, error = records.place_probes(probes, all_calls, clock)
        self.assertLessEqual(abs(found - shift), error)
        self.assertLessEqual(error, 30)
        self.assertIsNone(records.place_probes(probes, all_calls[:5], clock))


class Memory(unittest.TestCase):
    def test_events_are_kept_up_to_the_limit_only(self):
        """drain() takes no more than there is room for, and a page more."""
        page = bytes.fromhex(fsync_record()["pages"][0][1])

        class Endless(tracefs.Instance):
            def __init__(self):  # pylint: disable=super-init-not-called
                self.pages, self._readers = [], {0: os.open(
                    "/dev/zero", os.O_RDONLY)}

        instance = Endless()
        try:
            taken = instance.drain(10 * 16)
        finally:
            os.close(instance._readers[0])  # pylint: disable=protected-access
        self.assertEqual((taken, len(instance.pages)), (160, 10))
        self.assertGreater(len(page), 16)


if __name__ == "__main__":
    unittest.main()
