# SPDX-License-Identifier: BSD-3-Clause
"""Ties guest syncs, NBD requests, host syncs and disk flushes together.

The parts are tied by time, and where the kernel says so by thread.  A sync is
proven if a host sync ran inside the time that the server gives for it and, on
every disk with a volatile cache, a flush was issued after it began, after the
writes of its thread had completed, and completed before it returned.
"""

import bisect
from dataclasses import dataclass, field
from typing import Optional

from .records import BlockOp, GuestSync, HostSync, Request

# Between two readers of one clock: it is the same, read at two places.
CLOCK_NS = 1000

# What became of a guest's sync.
REACHED = "reached"  # A disk flush completed for it before it returned.
CLEAN = "clean"      # Nothing was new; an earlier flush covers it.
NOTHING = "nothing"  # The disk was never written to: nothing to do.
NONE = "none"        # Acknowledged, and no host sync was made.
FAILED = "failed"    # It was answered with an error, which promises nothing.
BROKEN = "broken"    # Anything else.


@dataclass
class Proof:
    """What is known of one host sync; @why is empty if it is proven."""
    why: str = ""
    host: Optional[HostSync] = None
    flush: Optional[BlockOp] = None
    writes: list = field(default_factory=list)


@dataclass
class Timeline:
    """One guest sync and what it caused."""
    guest: GuestSync
    fate: str = BROKEN
    text: str = ""
    requests: list = field(default_factory=list)  # That asked for durability.
    request: Optional[Request] = None  # The last of them.
    changes: list = field(default_factory=list)  # That were sent meanwhile.
    proof: Optional[Proof] = None
    links: list = field(default_factory=list)  # (name, ns)

    @property
    def total(self):
        return self.guest.end - self.guest.begin


class Evidence:
    """Looks things up in a Run by time."""

    def __init__(self, run):
        self.run = run
        self._proofs = {}
        self._flushes = {}
        for op in run.blocks:
            if op.kind == "flush":
                self._flushes.setdefault(op.disk, []).append(op)
        self._issues = {disk: [f.issue for f in ops]
                        for disk, ops in self._flushes.items()}
        self.writes = [op for op in run.blocks if op.kind == "write"]
        self._write_issues = [op.issue for op in self.writes]
        self._enters = [s.enter for s in run.host_syncs]
        self._arrivals = [r.arrival for r in run.requests]
        self._longest = max((r.end - r.arrival for r in run.requests),
                            default=0)
        self.volatile = [d for d in run.disks if d.volatile]

    def requests_between(self, low, high):
        """Those that arrived and ended in that time."""
        first = bisect.bisect_left(self._arrivals, low)
        last = bisect.bisect_right(self._arrivals, high)
        return [r for r in self.run.requests[first:last] if r.end <= high]

    def requests_under_way(self, when):
        """Those that had arrived and not ended at that time."""
        first = bisect.bisect_left(self._arrivals, when - self._longest)
        last = bisect.bisect_right(self._arrivals, when)
        return [r for r in self.run.requests[first:last] if r.end >= when]

    def host_syncs_between(self, low, high):
        first = bisect.bisect_left(self._enters, low)
        last = bisect.bisect_right(self._enters, high)
        return [s for s in self.run.host_syncs[first:last]
                if (s.exit or s.enter) <= high]

    def writes_between(self, low, high):
        first = bisect.bisect_left(self._write_issues, low)
        last = bisect.bisect_right(self._write_issues, high)
        return self.writes[first:last]

    def _last_flush(self, disk, low, high):
        """(the last one issued and completed in that time, has one failed)"""
        ops = self._flushes.get(disk, [])
        issues = self._issues.get(disk, [])
        has_failed = False
        at = bisect.bisect_right(issues, high)
        while at > 0 and issues[at - 1] >= low:
            at -= 1
            if 0 < ops[at].complete <= high:
                if ops[at].error == 0:
                    return ops[at], has_failed
                has_failed = True
        return None, has_failed

    def _prove(self, low, high, host, takes_fua):
        """Was every disk flushed between @low and @high, for @host?"""
        proof = Proof(host=host, writes=self.writes_between(low, high))
        for disk in self.volatile:
            flush, has_failed = self._last_flush(disk.number, low, high)
            if flush is None and takes_fua:
                flush = self._last_fua(proof.writes, disk.number, high)
            if flush is None:
                proof.why = (
                    "the flush of disk %s failed" % disk.name if has_failed
                    else "no flush of disk %s completed during the host's sync"
                    % disk.name)
                return proof
            if proof.flush is None or flush.complete > proof.flush.complete:
                proof.flush = flush
        if proof.flush is None:
            proof.why = ("disk %s has no volatile cache (write through), so"
                         " the block layer sends no flush that could be seen"
                         % ", ".join(d.name for d in self.run.disks))
        elif host and proof.flush.kind == "flush":
            proof.why = self._overtaken(proof, host)
        return proof

    @staticmethod
    def _last_fua(writes, number, high):
        """A disk that knows FUA needs no flush after a durable write."""
        good = [w for w in writes if w.fua and w.disk == number and
                0 < w.complete <= high and w.error == 0]
        return good[-1] if good else None

    @staticmethod
    def _overtaken(proof, host):
        """The sync's own data must have arrived before the flush is sent."""
        for write in proof.writes:
            if write.pid == host.tid and not write.fua and not (
                    0 < write.complete <= proof.flush.issue):
                return ("the disk was flushed before a write of this sync had"
                        " completed")
        return ""

    def prove_host_sync(self, host, until):
        """For a guest that opens the image itself."""
        if id(host) not in self._proofs:
            high = host.exit or until  # XFS does not say when it ends.
            proof = self._prove(host.enter, high, host, True)
            if host.result < 0:
                proof.why = "the host's %s failed (%d)" % (host.call,
                                                           host.result)
            self._proofs[id(host)] = proof
        return self._proofs[id(host)]

    def prove_sync(self, sync):
        """For one that the server says it made; once for those it serves."""
        key = (sync.submitted, sync.completed, sync.tid)
        if key not in self._proofs:
            self._proofs[key] = self._prove_sync(sync)
        return self._proofs[key]

    def _prove_sync(self, sync):
        if sync.result < 0:
            return Proof("the host's sync failed (%d)" % sync.result)
        if not 0 < sync.submitted <= sync.completed:
            return Proof("its sync has no time of submission and completion")
        low, high = sync.submitted - CLOCK_NS, sync.completed + CLOCK_NS
        inside = self.host_syncs_between(low, high)
        # What a ring does runs in a worker of the kernel, whichever.
        own = ([s for s in inside if s.tid == sync.tid] or
               [s for s in inside if s.call.startswith("io_uring") or
                sync.how == "write"])
        good = [s for s in own if s.result >= 0]
        if not good and self.run.sees_image_syncs:
            return Proof("the kernel saw no sync of the image in the time that"
                         " the server gives for it")
        if not good:
            return self._prove(low, high, None, sync.how == "write")
        # Of several that may be it, the last one that is proven.
        for host in reversed(good):
            proof = self._prove(
                max(low, host.enter), min(high, host.exit or high), host,
                sync.how == "write")
            if not proof.why:
                break
        return proof


# ---- Links ----

# Their names in the order of the way; not every sync has all.
LINKS = ("guest only", "guest → NBD", "guest → host", "NBD request",
         "NBD → fdatasync", "fdatasync → disk flush", "disk flush",
         "disk flush → fdatasync done", "fdatasync → reply", "reply → guest",
         "host → guest")


def _links(points):
    """Names and lengths between points of time that never go back."""
    links, now = [], points[0][1]
    for name, ns in points[1:]:
        ns = max(ns or now, now)
        links.append((name, ns - now))
        now = ns
    return links


def server_links(line):
    """Of a sync that went through the server."""
    guest, request, proof = line.guest, line.request, line.proof
    points = [("", guest.begin)]
    if guest.request is None:
        points.append(("guest → NBD", request.arrival))
    if proof and proof.flush:
        sync = request.sync
        points += [("NBD → fdatasync", sync.submitted),
                   ("fdatasync → disk flush", proof.flush.issue),
                   ("disk flush", proof.flush.complete),
                   ("disk flush → fdatasync done", sync.completed),
                   ("fdatasync → reply", request.end)]
    else:
        points.append(("NBD request", request.end))
    if guest.request is None:
        points.append(("reply → guest", guest.end))
    return _links(points)


def image_links(guest, proof):
    """Of a guest that opens the image itself."""
    host, flush = proof.host, proof.flush
    return _links([("", guest.begin), ("guest → host", host.enter),
                   ("fdatasync → disk flush", flush.issue),
                   ("disk flush", flush.complete),
                   ("disk flush → fdatasync done", host.exit or flush.complete),
                   ("host → guest", guest.end)])


def percentile(values, percent):
    """The smallest value that so many percent do not exceed."""
    ordered = sorted(values)
    at = max(0, -(-len(ordered) * percent // 100) - 1)
    return ordered[at]

