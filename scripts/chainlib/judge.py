# SPDX-License-Identifier: BSD-3-Clause
"""What became of each guest sync, and whether a mode kept its promise.

The rule for a flush, the server's (D1) and (D2) seen from outside: every
change that was acknowledged before it arrived is durable when it is answered.
A change is durable if it was a proven durable write itself, or if a proven
sync was submitted after it ended and completed before the answer.  A flush
that found nothing new ("clean") made no sync of its own; it is right if an
earlier sync covers all, and if there is such an earlier sync at all.
"""

import bisect

from . import join
from .join import (BROKEN, CLEAN, FAILED, NONE, NOTHING, REACHED, Evidence,
                   Timeline)

MODES = {"barrier": "barrier", "writeback": "barrier", "none": "barrier",
         "osync": "osync", "writethrough": "osync", "directsync": "osync",
         "unsafe": "unsafe"}


class Coverage:
    """Which changes were durable at what time, as far as it is proven."""

    def __init__(self, run, evidence):
        self._evidence, self._run = evidence, run
        syncs = [(s.completed, s.submitted) for s in self._proven(run)]
        syncs += [(h.exit, h.enter) for h in run.host_syncs
                  if run.has_server and run.sees_image_syncs and h.exit and
                  not evidence.prove_host_sync(h, h.exit).why]
        syncs.sort()
        self._completed = [s[0] for s in syncs]
        self._submitted = []  # The latest submission among those so far.
        for _, submitted in syncs:
            last = self._submitted[-1] if self._submitted else 0
            self._submitted.append(max(last, submitted))
        changes = sorted((r for r in run.requests if r.is_change),
                         key=lambda r: r.end)
        self._change_ends = [r.end for r in changes]
        self.volatile = [r for r in changes if not self.is_durable_itself(r)]
        self._ends = [r.end for r in self.volatile]

    def _proven(self, run):
        return [r.sync for r in run.requests
                if r.sync and r.sync.how in ("led", "joined") and
                not self._evidence.prove_sync(r.sync).why]

    def is_durable_itself(self, change):
        """Was this change durable before it was answered, by its own sync?"""
        sync = change.sync
        if sync is None or sync.how not in ("write", "led", "joined"):
            return False
        # One that asked nothing of the host before its own sync, such as a
        # trim of less than a block, is said to start with that.
        begin = change.arrival if sync.how == "led" else change.start
        return (begin - join.CLOCK_NS <= sync.submitted and
                sync.completed <= change.end and
                not self._evidence.prove_sync(sync).why)

    def covered_until(self, when):
        """What ended before that is durable at @when; 0: nothing is."""
        at = bisect.bisect_right(self._completed, when)
        return self._submitted[at - 1] if at else 0

    def uncovered(self, acknowledged, when):
        """Changes acknowledged by then and not known durable at @when."""
        first = bisect.bisect_right(self._ends, self.covered_until(when))
        last = bisect.bisect_right(self._ends, acknowledged)
        until = self.covered_until(when)
        return [c for c in self.volatile[first:last]
                if not self._is_cached(c, until)]

    def _is_cached(self, change, until):
        """Had all of a write reached the page cache by @until?

        Its reply came later, but a sync that is submitted then takes it along.
        """
        cached = self._run.cached_writes
        first = bisect.bisect_left(cached, (change.start,))
        last = bisect.bisect_right(cached, (until,))
        end = change.offset + change.length
        return change.kind == "write" and change.length <= sum(
            length for _, offset, length in cached[first:last]
            if change.offset <= offset and offset + length <= end)

    def has_change_before(self, when):
        return bisect.bisect_right(self._change_ends, when) > 0


def _name(change):
    return "the %s of %d bytes at %d" % (change.title, change.length,
                                         change.offset)


class Judge:
    """Makes the timelines of a Run and says what is wrong with it."""

    def __init__(self, run):
        self.run = run
        self.evidence = Evidence(run)
        self.coverage = Coverage(run, self.evidence)
        self.timelines = [self._timeline(g) for g in run.guest_syncs]

    # ---- One request ----

    def _describe_uncovered(self, changes, when):
        until = self.coverage.covered_until(when)
        sure = [c for c in changes if c.start >= until]
        if sure:
            return ("%s was acknowledged before it and no host sync covers it"
                    % _name(sure[0]))
        return ("it cannot be decided whether %s, which was under way when the"
                " sync was submitted, is covered" % _name(changes[0]))

    def judge_request(self, request):
        """(fate, text, Proof or None) of a request for durability."""
        sync, what = request.sync, request.title
        if request.result < 0:
            return FAILED, "%s was answered with an error (%d)" % (
                what, request.result), None
        if sync and sync.how in ("led", "joined", "write"):
            if sync.completed > request.end:
                return BROKEN, "%s was answered before its sync completed" % (
                    what), None
            proof = self.evidence.prove_sync(sync)
            if proof.why:
                return BROKEN, "%s was acknowledged, but %s" % (
                    what, proof.why), proof
            fate, text = REACHED, "%s, %s" % (what, {
                "led": "made a sync of its own", "write": "a durable write",
                "joined": "joined sync %d" % sync.id}[sync.how])
        else:
            proof = None
            fate, text = self._judge_without_sync(request)
        if fate in (BROKEN, NONE) or sync and sync.how == "write":
            return fate, text, proof
        left = self.coverage.uncovered(request.arrival, request.end)
        if left:
            return BROKEN, "%s was acknowledged, but %s" % (
                what, self._describe_uncovered(left, request.end)), proof
        return fate, text, proof

    def _judge_without_sync(self, request):
        what = request.title
        if request.sync and request.sync.how == "clean":
            if not self.coverage.covered_until(request.end):
                return BROKEN, ("%s was called clean, but no host sync"
                                " completed before it" % what)
            return CLEAN, ("%s found nothing new: covered by sync %d"
                           % (what, request.sync.id))
        if self.run.mode == "osync" and request.kind == "flush":
            if self.coverage.has_change_before(request.arrival):
                return CLEAN, "FLUSH: every write was durable already"
            return NOTHING, "FLUSH, and nothing was ever written"
        return NONE, "%s acknowledged, no host sync" % what

    # ---- One guest sync ----

    def _timeline(self, guest):
        line = Timeline(guest)
        if guest.request is not None:
            line.requests = [guest.request]
            self._follow(line, [guest.request])
        elif guest.result < 0:
            line.fate = FAILED
            line.text = "the guest's %s failed (%d)" % (guest.kind,
                                                        guest.result)
        elif self.run.has_server:
            self._through_server(line)
        else:
            self._without_server(line)
        return line

    def _through_server(self, line):
        slack, guest = self.run.slack, line.guest
        inside = self.evidence.requests_between(guest.begin - slack,
                                                guest.end + slack)
        changes = [r for r in inside if r.is_change]
        line.changes = changes
        line.requests = [r for r in inside if r.asks_for_durability]
        if not line.requests:  # It may wait for one that was under way.
            line.requests = [
                r for r in self.evidence.requests_under_way(guest.begin)
                if r.asks_for_durability and r.end <= guest.end + slack]
        durable = [r for r in changes if self.coverage.is_durable_itself(r)]
        if line.requests or durable:
            self._follow(line, line.requests, durable)
        else:
            self._sent_nothing(line)

    def _follow(self, line, requests, durable=()):
        """Sets the fate from those of the requests: the worst counts."""
        judged = [(r, *self.judge_request(r)) for r in requests]
        judged += [(r, REACHED, "%s, a durable write" % r.title,
                    self.evidence.prove_sync(r.sync)) for r in durable
                   if r not in requests]
        judged.sort(key=lambda j: j[0].end)
        order = [BROKEN, FAILED, NONE, REACHED, CLEAN, NOTHING]
        worst = min((j[1] for j in judged), key=order.index)
        chosen = [j for j in judged if j[1] == worst][-1]
        line.request, line.fate, line.text, line.proof = chosen
        line.links = join.server_links(line)

    def _sent_nothing(self, line):
        end = line.guest.end
        line.links = [("guest only", line.total)]
        if not self.coverage.has_change_before(end):
            line.fate = NOTHING
            line.text = "the disk has never been written to"
            return
        left = self.coverage.uncovered(end, end)
        if left and self.run.mode == "unsafe":
            line.fate, line.text = NOTHING, "the guest sent no FLUSH"
        elif left:
            line.fate = BROKEN
            line.text = ("the guest's %s sent no FLUSH, but %s" % (
                line.guest.kind, self._describe_uncovered(left, end)))
        else:
            line.fate = CLEAN
            line.text = ("the guest sent no FLUSH: all was durable since"
                         " earlier host syncs")

    def _without_server(self, line):
        slack, guest = self.run.slack, line.guest
        syncs = self.evidence.host_syncs_between(guest.begin - slack,
                                                 guest.end + slack)
        if not syncs:
            self._never_synced(line)
            return
        line.proof = self.evidence.prove_host_sync(syncs[-1],
                                                   guest.end + slack)
        if line.proof.why:
            line.fate = BROKEN
            line.text = "the host synced, but " + line.proof.why
            return
        line.fate = REACHED
        line.text = "%d host syncs, the last one by %s" % (
            len(syncs), syncs[-1].call)
        line.links = join.image_links(guest, line.proof)

    def _never_synced(self, line):
        """Right only if nothing was written since a sync that is proven."""
        end = line.guest.end
        line.links = [("guest only", line.total)]
        at = bisect.bisect_right(self.run.image_changes, end)
        line.fate = NONE
        line.text = "the guest flushed, the host never synced"
        if not self.run.sees_image_changes:
            return
        if at == 0:
            line.fate = NOTHING
            line.text = "the image has never been written to"
        elif any(not self.evidence.prove_host_sync(s, end).why
                 for s in self.evidence.host_syncs_between(
                     self.run.image_changes[at - 1], end)):
            line.fate = CLEAN
            line.text = "nothing new since the host's last sync"

    # ---- The whole run ----

    def check(self, mode):
        """Why @mode's promise was not kept; empty if it was."""
        reasons = ["the record has a hole: " + p for p in self.run.problems]
        if not self.timelines:
            reasons.append("there was no %s sync at all" % self.run.guest_word)
            return reasons
        if mode == "unsafe":
            return reasons + self._check_unsafe()
        bad = [t for t in self.timelines
               if t.fate in (BROKEN, NONE, FAILED)]
        if bad:
            reasons.append("%d of %d %s syncs did not reach the disk; number"
                           " %d: %s" % (len(bad), len(self.timelines),
                                        self.run.guest_word,
                                        bad[0].guest.number, bad[0].text))
        elif not self._has_proof():
            reasons.append("no %s sync had anything to bring to the disk, so"
                           " nothing is proven" % self.run.guest_word)
        if self.run.has_server:
            reasons += self._check_requests(mode)
        return reasons

    def _has_proof(self):
        """Was anything seen to reach the disk?  With every write durable by
        itself the syncs have nothing left to bring there."""
        return (any(t.fate == REACHED for t in self.timelines) or
                any(self.coverage.is_durable_itself(r)
                    for r in self.run.requests if r.is_change))

    def _check_requests(self, mode):
        """Also those that belong to no guest sync that was seen."""
        reasons = []
        asked = [r for r in self.run.requests if r.asks_for_durability]
        judged = [(r, *self.judge_request(r)) for r in asked]
        bad = [j for j in judged if j[1] in (BROKEN, NONE, FAILED)]
        if bad:
            reasons.append("%d of %d NBD requests for durability did not reach"
                           " the disk; request %d: %s"
                           % (len(bad), len(asked), bad[0][0].id, bad[0][2]))
        if mode == "osync" and self.coverage.volatile:
            first = self.coverage.volatile[0]
            why = (self.evidence.prove_sync(first.sync).why
                   if first.sync and first.sync.how != "none" else "")
            reasons.append("%d changes were acknowledged before they were on"
                           " the disk; %s: %s"
                           % (len(self.coverage.volatile), _name(first),
                              why or "no host sync completed for it"))
        return reasons

    def _check_unsafe(self):
        reasons = []
        synced = [r for r in self.run.requests
                  if r.sync and r.sync.how in ("led", "joined", "write",
                                               "clean")]
        if synced:
            reasons.append("the server synced for %d requests, the first of"
                           " them %s" % (len(synced), synced[0].title))
        if self.run.has_server and self.run.requests:
            low = self.run.requests[0].arrival
            high = max(r.end for r in self.run.requests)
        else:
            low = self.timelines[0].guest.begin
            high = max(t.guest.end for t in self.timelines)
        seen = (self.evidence.host_syncs_between(low, high)
                if self.run.sees_image_syncs else [])
        if seen:
            reasons.append("the kernel saw %d syncs of the image, the first by"
                           " %s" % (len(seen), seen[0].call))
        if not any(t.fate == NONE for t in self.timelines):
            reasons.append("no %s sync was acknowledged without a host sync,"
                           " so nothing is shown" % self.run.guest_word)
        failed = [t for t in self.timelines if t.fate == FAILED]
        if failed:
            reasons.append("%s sync %d failed: %s"
                           % (self.run.guest_word, failed[0].guest.number,
                              failed[0].text))
        return reasons
