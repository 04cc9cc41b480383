# SPDX-License-Identifier: BSD-3-Clause
"""Timelines and their summary, as text and as CSV."""

import csv

from . import join
from .join import BROKEN, CLEAN, FAILED, NONE, NOTHING, REACHED

FATES = {REACHED: "reached the disk", CLEAN: "had nothing new (covered by an"
         " earlier flush)", NOTHING: "had nothing to do",
         NONE: "never caused a host sync", FAILED: "failed",
         BROKEN: "DID NOT REACH THE DISK"}
PERCENTS = (50, 90, 99, 100)


def us(ns):
    return "{:,.1f}".format(ns / 1000)


def size(nr_bytes):
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if nr_bytes >= 1 << shift:
            return "%.4g %s" % (nr_bytes / (1 << shift), unit)
    return "%d bytes" % nr_bytes


def plural(n, word):
    return "%d %s%s" % (n, word, "" if n == 1 else "s")


def describe_changes(line):
    kinds = {c.kind for c in line.changes}
    return "%s, %s" % (
        plural(len(line.changes), kinds.pop() if len(kinds) == 1 else
               "change"), size(sum(c.length for c in line.changes)))


def steps(run, line):
    """(ns, lane, text) of what is known of one guest sync, in time's order."""
    guest, request, proof = line.guest, line.request, line.proof
    found = []
    if guest.request is None:
        found.append((guest.begin, "guest", "%s begins" % guest.kind))
        found.append((guest.end, "guest", "%s returns %d"
                      % (guest.kind, guest.result)))
    if line.changes:
        found.append((line.changes[0].arrival, "NBD", "first of %s arrives"
                      % describe_changes(line)))
        found.append((max(c.end for c in line.changes), "NBD",
                      "the last of them acknowledged"))
    if request:
        found.append((request.arrival, "NBD", "%s arrives (request %d,"
                      " connection %d)" % (request.title, request.id,
                                           request.conn)))
        found.append((request.end, "NBD", "reply" if request.result == 0 else
                      "reply, error %d" % request.result))
        found += _server_steps(request.sync)
    if proof:
        found += _disk_steps(proof)
    order = {"guest": 0, "NBD": 1, "ubd": 2, "host": 3, "disk": 4}
    first = min(f[0] for f in found) if found else 0
    # Of things at one time the outer one begins first and ends last.
    return sorted(found, key=lambda f: (
        f[0], order[f[1]] if f[0] - first < line.total / 2 else -order[f[1]]))


def _server_steps(sync):
    if sync is None or sync.how not in ("led", "joined", "write"):
        return []
    what = {"led": "sync %d submitted" % sync.id,
            "joined": "joined sync %d, submitted" % sync.id,
            "write": "durable write submitted"}[sync.how]
    return [(sync.submitted, "ubd", what),
            (sync.completed, "ubd", "completed, result %d" % sync.result)]


def _disk_steps(proof):
    found = []
    if proof.host:
        found.append((proof.host.enter, "host", proof.host.call + " begins"))
        if proof.host.exit:
            found.append((proof.host.exit, "host", "%s returns %d" % (
                proof.host.call, proof.host.result)))
    writes = [w for w in proof.writes if w is not proof.flush]
    if writes:
        found.append((writes[0].issue, "disk", "%s issued, %s" % (
            plural(len(writes), "write"), size(sum(w.bytes
                                                   for w in writes)))))
        done = [w.complete for w in writes if w.complete]
        if done:
            found.append((max(done), "disk", "the last of them completed"))
    if proof.flush:
        what = "flush" if proof.flush.kind == "flush" else "write with FUA"
        found.append((proof.flush.issue, "disk", "%s issued (by %s)" % (
            what, proof.flush.comm)))
        found.append((proof.flush.complete, "disk", what + " completed"))
    return found


def timeline(run, line):
    """Lines of text."""
    guest = line.guest
    head = "%s sync %d: %s by %s, %s µs: %s" % (
        run.guest_word, guest.number, guest.kind, guest.comm, us(line.total),
        line.text)
    out = [head]
    found = steps(run, line)
    start = min([guest.begin] + [f[0] for f in found[:1]])
    before = start
    for ns, lane, text in found:
        out.append("  %12s µs %12s  %-6s %s" % (
            us(ns - start), "+" + us(ns - before), lane, text))
        before = ns
    if line.fate in (NONE, BROKEN):
        out.append("  %15s %12s  %-6s %s" % ("", "MISSING", "", line.text))
    return out


def link_values(timelines):
    """Names of links, in order of first use, with their values in ns."""
    values = {}
    order = {name: i for i, name in enumerate(join.LINKS)}
    for line in timelines:
        for name, ns in line.links:
            values.setdefault(name, []).append(ns)
    names = sorted(values, key=lambda n: order.get(n, len(order)))
    return [(name, values[name]) for name in names]


def summary(run, timelines):
    """Lines of text: each link's percentiles, and what became of the syncs."""
    out = []
    rows = link_values(timelines)
    if timelines:
        rows.append(("whole %s sync" % run.guest_word,
                     [t.total for t in timelines]))
        out.append("  %-28s %7s %11s %11s %11s %11s" % (
            "link, µs", "count", "p50", "p90", "p99", "max"))
    for name, values in rows:
        out.append("  %-28s %7d %11s %11s %11s %11s" % (
            name, len(values),
            *(us(join.percentile(values, p)) for p in PERCENTS)))
    out.append("")
    for fate in FATES:
        n = sum(t.fate == fate for t in timelines)
        if n:
            out.append("  %6d %s" % (n, FATES[fate]))
    if not timelines:
        out.append("  no %s sync was seen" % run.guest_word)
    return out


def title(run):
    way = ("%s guest, attached with %s" % (run.guest, run.attach)
           if run.guest else "a client on the host")
    served = "cache=%s" % run.mode if run.has_server else "no server of ours"
    return "%s, %s, image on disk %s" % (
        way, served, ", ".join(d.name for d in run.disks))


def remarks(run):
    """What a reader must know to trust the figures."""
    out = list(run.notes)
    if run.guest:
        out.append("times of the guest are right to %s µs; watching adds about"
                   " %s µs to each of its syncs" % (us(run.slack),
                                                    us(run.watch_cost)))
    if run.nr_other_syncs:
        out.append("%s of other disks of the guest not counted"
                   % plural(run.nr_other_syncs, "sync"))
    if not run.sees_image_syncs:
        out.append("on this file system the kernel does not tell which file"
                   " is synced: syncs are tied to the image by time alone")
    return out + ["INCOMPLETE: " + p for p in run.problems]


def chosen(timelines, most):
    """The first few and the slowest few, in the order of their numbers."""
    if len(timelines) <= 2 * most:
        return timelines
    slow = sorted(timelines, key=lambda t: -t.total)[:most]
    wanted = {id(t) for t in timelines[:most] + slow}
    bad = [t for t in timelines if t.fate == BROKEN][:most]
    wanted |= {id(t) for t in bad}
    return [t for t in timelines if id(t) in wanted]


def text(run, timelines, most):
    """The whole report."""
    out = ["chain: " + title(run), ""]
    shown = chosen(timelines, most)
    for line in shown:
        out += timeline(run, line) + [""]
    if len(shown) < len(timelines):
        out += ["(%d of %d shown: the first and the slowest; --show N for"
                " more, --csv for all)" % (len(shown), len(timelines)), ""]
    out += summary(run, timelines)
    left = remarks(run)
    if left:
        out += [""] + ["  note: " + r for r in left]
    return "\n".join(out) + "\n"


def write_csv(f, timelines):
    """A row for each guest sync; times in ns, links in columns."""
    names = [name for name, _ in link_values(timelines)]
    writer = csv.writer(f, lineterminator="\n")
    writer.writerow(["number", "kind", "program", "fate", "begin_ns",
                     "total_ns", "changes", "bytes"] +
                    [n + " ns" for n in names] + ["text"])
    for line in timelines:
        links = dict(line.links)
        writer.writerow([line.guest.number, line.guest.kind, line.guest.comm,
                         line.fate, line.guest.begin, line.total,
                         len(line.changes), sum(c.length for c in line.changes)] +
                        [links.get(n, "") for n in names] + [line.text])
