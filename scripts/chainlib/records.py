# SPDX-License-Identifier: BSD-3-Clause
"""What was recorded, as objects; all times are nanoseconds of the host's
CLOCK_MONOTONIC.

Readers of the plugin's trace and of the guest's own record are here; kernel.py
makes the rest from the host's events.
"""

import json
from dataclasses import dataclass, field
from typing import Optional

CHANGES = ("write", "trim", "zero")


@dataclass
class Sync:
    """What the server says made a request durable."""
    id: int
    how: str  # led, joined, clean, write, none
    submitted: int
    completed: int
    tid: int
    result: int


@dataclass
class Request:
    """One NBD request, as the plugin's trace has it."""
    id: int
    conn: int
    kind: str
    offset: int
    length: int
    fua: bool
    arrival: int
    start: int
    end: int
    result: int
    sync: Optional[Sync]

    @property
    def is_change(self):
        return self.kind in CHANGES and self.result == 0

    @property
    def asks_for_durability(self):
        return self.kind == "flush" or self.fua and self.kind in CHANGES

    @property
    def title(self):
        if self.kind == "flush":
            return "FLUSH"
        return "%s%s" % (self.kind.upper(), "+FUA" if self.fua else "")


@dataclass
class GuestSync:
    """A sync as the program that asked for it sees it."""
    number: int
    kind: str  # fsync, fdatasync, ...; or FLUSH, of a client on the host
    begin: int
    end: int
    result: int
    comm: str
    request: Optional[Request] = None  # If it is one itself.


@dataclass
class HostSync:
    """A sync of the image that the host's kernel was seen to do."""
    call: str
    enter: int
    exit: int
    tid: int
    result: int


@dataclass
class BlockOp:
    """A request of the block layer to the disk."""
    disk: int
    kind: str  # flush, write, read, discard
    fua: bool
    sector: int
    bytes: int
    issue: int
    complete: int  # 0: not seen.
    error: int
    pid: int
    comm: str


@dataclass
class WatchedDisk:
    """A disk that holds the image."""
    name: str
    number: int  # As block events have it.
    volatile: bool  # It has a cache that a flush empties.


@dataclass
class Run:
    """Everything about one run."""
    requests: list = field(default_factory=list)
    guest_syncs: list = field(default_factory=list)
    host_syncs: list = field(default_factory=list)
    blocks: list = field(default_factory=list)
    image_changes: list = field(default_factory=list)  # ns; without a server
    sees_image_changes: bool = False
    cached_writes: list = field(default_factory=list)  # (ns, offset, length)
    disks: list = field(default_factory=list)
    problems: list = field(default_factory=list)  # Holes in the record.
    notes: list = field(default_factory=list)
    mode: str = ""
    guest: str = ""  # uml, qemu or empty: a command on the host
    attach: str = ""
    has_server: bool = True  # False: the guest opens the image itself.
    sees_image_syncs: bool = True  # The kernel tells which file is synced.
    slack: int = 1000  # How far guest times may be off, and clocks differ.
    watch_cost: int = 0  # What watching adds to a guest's sync.
    nr_other_syncs: int = 0  # The guest's, of other file systems.

    @property
    def guest_word(self):
        return "guest" if self.guest else "client"


class BadTrace(Exception):
    """The text says what is wrong with which line."""


def _lines(text, what):
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            value = json.loads(line)
        except ValueError:
            raise BadTrace("%s, line %d: not JSON: %.60s"
                           % (what, number, line)) from None
        if not isinstance(value, dict):
            raise BadTrace("%s, line %d: expected an object"
                           % (what, number))
        yield number, value


def _request(value):
    raw = value.get("sync")
    sync = None
    if raw:
        sync = Sync(raw.get("id") or 0, raw["how"], raw.get("submitted") or 0,
                    raw.get("completed") or 0, raw.get("tid") or 0,
                    raw.get("result") or 0)
    return Request(value["id"], value["conn"], value["kind"], value["offset"],
                   value["length"], "fua" in value["flags"], value["arrival"],
                   value["start"] or value["arrival"], value["end"],
                   value["result"], sync)


def parse_plugin_trace(text):
    """(head, requests in the order of their arrival, problems)."""
    head, requests, problems, has_end = None, [], [], False
    for number, value in _lines(text, "the plugin's trace"):
        if head is None:
            if value.get("ubd_trace") != 1:
                raise BadTrace("the plugin's trace, line 1: expected "
                               "\"ubd_trace\":1")
            if value.get("clock") != "monotonic":
                raise BadTrace("the plugin's trace: its clock is %r, expected"
                               " monotonic" % value.get("clock"))
            head = value
        elif "kind" in value:
            try:
                requests.append(_request(value))
            except (KeyError, TypeError) as e:
                raise BadTrace("the plugin's trace, line %d: no usable %s"
                               % (number, e)) from None
        elif "records" in value and "end" in value:
            has_end = True
            if value["records"] != len(requests):
                problems.append("the plugin's trace says %d records and has"
                                " %d" % (value["records"], len(requests)))
            if value.get("dropped"):
                problems.append("the plugin's trace dropped %d records"
                                % value["dropped"])
    if head is None:
        raise BadTrace("the plugin's trace is empty")
    if not has_end:
        problems.append("the plugin's trace has no end: the server was killed")
    requests.sort(key=lambda r: r.arrival)
    return head, requests, problems


class TscClock:
    """Nanoseconds from the time stamp counter, by two readings of both."""

    def __init__(self, before, after):
        if after["tsc"] <= before["tsc"]:
            raise BadTrace("the time stamp counter does not advance")
        self._tsc, self._ns = before["tsc"], before["ns"]
        self.rate = (after["ns"] - before["ns"]) / (after["tsc"]
                                                    - before["tsc"])
        # Each reading is right to half the time that it took.
        self.error = int(max(before["width_tsc"], after["width_tsc"])
                         * self.rate / 2) + 1

    def ns(self, tsc):
        return self._ns + round((tsc - self._tsc) * self.rate)

    def length(self, ticks):
        return round(ticks * self.rate)

    def shift(self, ns):
        """The counter of a guest lags behind ours by that much."""
        self._ns += ns


def parse_guest_record(text):
    """(syncs of the disk, probes, cost in ticks, others, problems); times
    are ticks of the guest's counter.
    """
    syncs, probes, cost, others, problems = [], [], 0, 0, []
    head = end = None
    for number, value in _lines(text, "the guest's record"):
        if head is None:
            if value.get("ubd_watch") != 1 or value.get("clock") != "tsc":
                raise BadTrace("the guest's record, line 1: expected"
                               " \"ubd_watch\":1 and the clock tsc")
            head = value
        elif "probe" in value:
            probes.append((value["begin"], value["end"]))
        elif "error_tsc" in value:
            cost = value["error_tsc"]
        elif "kind" in value:
            if not value["ours"]:
                others += 1
                continue
            try:
                syncs.append(GuestSync(0, value["kind"], value["begin"],
                                       value["end"], value["result"],
                                       value["comm"]))
            except KeyError as e:
                raise BadTrace("the guest's record, line %d: no %s"
                               % (number, e)) from None
        elif "end" in value:
            end = value
    if head is None:
        raise BadTrace("the guest's record is empty")
    if end is None:
        problems.append("the guest's record of its syncs has no end: the"
                        " guest died or was stopped")
    elif end["lost"]:
        problems.append("the guest's record lost %d syncs" % end["lost"])
    return syncs, probes, cost, others, problems


def place_probes(probes, calls, clock):
    """(shift, error) in ns that put the guest's calls around the host's.

    A call begins in the guest before the host is seen to begin it, and ends
    in the guest after it ended there; so each pair bounds the shift from both
    sides.  @calls are (enter, exit), in order, maybe with some of others among
    them; None if no row of them fits.
    """
    best = None
    for first in range(len(calls) - len(probes) + 1 if probes else 0):
        pairs = list(zip(probes, calls[first:]))
        most = min(c[0] - clock.ns(p[0]) for p, c in pairs)
        least = max(c[1] - clock.ns(p[1]) for p, c in pairs)
        if least <= most and (best is None or most - least < best[1] * 2):
            best = (most + least) // 2, (most - least) // 2 + 1
    return best


def number_syncs(syncs):
    syncs.sort(key=lambda s: s.begin)
    for number, sync in enumerate(syncs, 1):
        sync.number = number
    return syncs


def syncs_of_client(requests):
    """For a command on the host: what it asks of the server is its sync."""
    return number_syncs([
        GuestSync(0, r.title, r.arrival, r.end, r.result, "conn %d" % r.conn,
                  r) for r in requests if r.asks_for_durability])
