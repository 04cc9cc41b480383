# SPDX-License-Identifier: BSD-3-Clause
#
# Reading traces for the tests, and a client that is fast enough to fill the
# buffers of one.

import json
import socket
import struct
import threading

from ubdtest import *

RECORD = {"id", "conn", "kind", "offset", "length", "flags", "arrival",
          "start", "end", "result", "sync"}
SYNC = {"id", "how", "submitted", "completed", "tid", "result"}


class Trace:
    """A whole trace: .first, .records by id, .drops, .last."""

    def __init__(self, text, is_whole=True):
        lines = text.split(b"\n")
        rest = lines.pop()
        check(not is_whole or rest == b"", f"a line without its end: {rest!r}")
        lines = [json.loads(line.decode()) for line in lines]
        self.first = lines.pop(0)
        equal(self.first["ubd_trace"], 1, "version in the first line")
        self.last = lines.pop() if lines and "records" in lines[-1] else None
        check(self.last or not is_whole, "the trace has no last line")
        self.drops = [x for x in lines if "dropped" in x]
        records = [x for x in lines if "dropped" not in x]
        self.records = sorted(records, key=lambda x: x["id"])
        ids = [x["id"] for x in self.records]
        equal(len(set(ids)), len(ids), "ids that differ")
        for record in self.records:
            equal(set(record), RECORD, "fields of a record")
            if record["sync"] is not None:
                equal(set(record["sync"]), SYNC, "fields of its sync")
            times = record["arrival"], record["start"], record["end"]
            equal(list(times), sorted(times), f"order of times in {record}")
        if is_whole:
            equal(set(self.last), {"end", "records", "dropped"}, "last line")
            equal(self.last["records"], len(records), "records it speaks of")
            told = sum(x["dropped"] for x in self.drops)
            check(told <= self.last["dropped"], "drops told and in all")
            for before, drop in zip([{"total": 0}] + self.drops, self.drops):
                equal(drop["total"], before["total"] + drop["dropped"],
                      "running total of drops")

    def of(self, kind):
        return [x for x in self.records if x["kind"] == kind]

    def hows(self, kind):
        return [x["sync"] and x["sync"]["how"] for x in self.of(kind)]


def read_trace(path, is_whole=True):
    return Trace(read_file(path), is_whole)


class FastClient:
    """Speaks NBD itself, so that a request costs no Python."""

    def __init__(self, server):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.settimeout(PATIENCE)
        self.socket.connect(server.sock)
        equal(self._read(16), b"NBDMAGICIHAVEOPT", "greeting")
        self._read(2)
        self.socket.sendall(struct.pack(">I8sII", 3, b"IHAVEOPT", 1, 0))
        self._read(10)

    def _read(self, size):
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(min(size - len(data), MiB))
            check(part, "the server closed the connection")
            data += part
        return bytes(data)

    def ask(self, nr):
        """@nr requests, all of which must succeed.

        They are hints to read what is in the page cache (CACHE), as nothing
        is cheaper.
        """
        request = struct.pack(">IHHQQI", 0x25609513, 0, 5, 0, 0, 512)
        sender = threading.Thread(target=self.socket.sendall,
                                  args=(request * nr,), daemon=True)
        sender.start()
        replies = self._read(16 * nr)
        sender.join()
        same_bytes(replies, struct.pack(">IIQ", 0x67446698, 0, 0) * nr,
                   "replies")

    def close(self):
        self.socket.sendall(struct.pack(">IHHQQI", 0x25609513, 0, 2, 0, 0, 0))
        self.socket.close()
