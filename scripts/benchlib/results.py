# SPDX-License-Identifier: BSD-3-Clause
"""What was measured: medians, ratios, tables, CSV, and comparing two CSVs."""

import csv
import statistics

from .servers import Failed, Missing

FIELDS = ["row", "load", "server", "group", "honest", "round", "status",
          "value", "unit", "better", "lo", "hi", "rounds",
          "p50_us", "p99_us", "flush_p50_us", "flush_p99_us", "clean_p99_us",
          "samples",
          "seconds", "flush_seconds", "requests", "writes", "flushes", "fua",
          "host_flushes", "host_bytes", "distinct_bytes", "cpu_us",
          "peak_dirty", "dirty_at_flush", "dirty_at_end"]
_TEXT = ("row", "load", "server", "group", "honest", "status", "unit",
         "better")


def cheats(load, server, r, disk):
    """Why the figure in @r is impossible for an honest server, or "".

    A flush of the disk covers only what was written before it began, so it
    can answer at most the flushes that were waiting at that moment:
    load.in_flight.  One is granted for a flush that was running at the start,
    of each slice if there are several.
    This finds those who do not flush; it does not prove that the rest do it
    right.
    """
    if not server.honest or server.group == "raw":
        return ""
    acknowledged = r.get("flushes", 0) + r.get("fua", 0)
    at_once = load.in_flight
    if server.durable_writes and r.get("writes"):
        acknowledged, at_once = r["writes"], load.depth * load.jobs
    done = r["host_flushes"] + (r["host_writes"] if disk.native_fua else 0)
    if at_once and acknowledged and not disk.why_unknown and (
            done == 0
            or acknowledged > (done + r.get("slices", 1)) * at_once):
        return "refused: %d flushes acknowledged, %d completed by the disk" % (
            acknowledged, done)
    # Others' flushes hide a cheat from the counter above, but not from this:
    # after a flush the image is clean, up to what was written after the last
    # one.  64 KiB for a 4 KiB write, as the cache may hold larger folios.
    left = r.get("dirty_at_end")
    if at_once and not load.leaves_dirty and left and (
            left > at_once * 65536):
        return "refused: %d flushes acknowledged, %d KiB still dirty" % (
            acknowledged, left >> 10)
    data = r.get("distinct_bytes", 0)
    if disk.stats and r["host_bytes"] < data * 0.9:
        return "refused: %d MiB acknowledged as durable, %d written by the " \
            "disk" % (data >> 20, r["host_bytes"] >> 20)
    return ""


class Row:
    """One server's rounds of one load."""

    def __init__(self, server, group, honest, higher):
        self.server, self.group, self.honest = server, group, honest
        self.higher = higher
        self.rounds = {}  # Number of the round: figures.
        self.trouble = ""  # Why there is no figure.

    def take(self, n, found):
        """@found: the figures of round @n, or the Failed that says why there
        are none.
        """
        if isinstance(found, Missing):
            self.trouble = "skipped: %s" % found
        elif isinstance(found, Failed):
            self.trouble = str(found)
        else:
            self.rounds[n] = found

    @property
    def ok(self):
        return bool(self.rounds) and not self.trouble

    def median(self, field="value"):
        values = [r[field] for r in self.rounds.values()
                  if r.get(field) is not None]
        return statistics.median(values) if values else None

    def span(self):
        values = [r["value"] for r in self.rounds.values()]
        return min(values), max(values)

    def ratio(self, other):
        """How many times better than @other: the median over the rounds that
        both have, since neighbours in time share the machine's mood.
        """
        if not (self.ok and other and other.ok):
            return None
        pairs = [(self.rounds[n]["value"], other.rounds[n]["value"])
                 for n in self.rounds if n in other.rounds]
        if not self.higher:
            pairs = [(b, a) for a, b in pairs]
        ratios = [a / b for a, b in pairs if b]
        return statistics.median(ratios) if ratios else None


class Result:
    """One load's rows."""

    def __init__(self, load, servers):
        self.load = load
        self.rows = {s.name: Row(s.name, s.group, s.honest, load.higher)
                     for s in servers}
        self.marks = {s.name: s.mark for s in servers}
        self.labels = {s.name: s.label for s in servers}

    def best_peer(self):
        peers = [r for r in self.rows.values()
                 if r.ok and r.honest and r.group == "peer"]
        pick = max if self.load.higher else min
        return pick(peers, key=lambda r: r.median()) if peers else None

    def columns(self):
        """[(head, function that makes the text of a row's cell)]"""
        best = self.best_peer()
        file, null = self.rows.get("nbdkit-file"), self.rows.get("nbdkit-null")
        return [
            ("median " + self.load.unit, lambda r: number(r.median())),
            ("spread", spread),
            ("x file", lambda r: ratio(r.ratio(file))),
            ("x null", lambda r: ratio(r.ratio(null))),
            ("x best peer", lambda r: ratio(r.ratio(best)) + (
                "*" if r is best else "")),
            ("p50 us", lambda r: number(r.median("p50_us"))),
            ("p99 us", lambda r: number(r.median("p99_us"))),
            ("samples", lambda r: number(r.median("samples"))),
            ("clean p99", lambda r: number(r.median("clean_p99_us"))),
            ("flush p50", lambda r: number(r.median("flush_p50_us"))),
            ("flush s", lambda r: number(r.median("flush_seconds"))),
            ("flushes per disk flush", _flushes_each) if self.load.slow else
            ("disk flushes per flush", _per_flush),
            ("disk bytes x data", amplification),
            ("cpu us/req", lambda r: number(r.median("cpu_us"))),
            ("peak dirty MB", lambda r: number(
                scaled(r.median("peak_dirty"), 1e6))),
        ]

    def in_order(self):
        """The rows that have figures, as they are printed."""
        return sorted((r for r in self.rows.values() if r.ok),
                      key=lambda r: (r.group != "ours", r.group))

    def table(self):
        """(head, lines of text cells, list of troubles)."""
        columns, rows = self.columns(), self.in_order()
        cells = [[make(r) for _, make in columns] for r in rows]
        keep = [i for i in range(len(columns))
                if any(c[i].strip("-0*.") for c in cells)]
        head = ["server"] + [columns[i][0] for i in keep]
        lines = [[self.labels[r.server] + self.marks[r.server]]
                 + [c[i] for i in keep]
                 for r, c in zip(rows, cells)]
        told = {}
        for r in self.rows.values():
            if not r.ok:
                told.setdefault(r.trouble or "no result", []).append(r.server)
        troubles = ["%s: %s" % (" ".join(names), why)
                    for why, names in told.items()]
        return head, lines, troubles

    def text(self):
        head, lines, troubles = self.table()
        out = ["", "%s: %s" % (self.load.name, self.load.title)]
        if lines:
            out += align([head] + lines)
        return "\n".join(out + ["  ! " + t for t in troubles])

    def csv_rows(self, also=()):
        load = self.load
        for r in self.rows.values():
            fixed = {"load": load.name, "server": r.server, "group": r.group,
                     "honest": int(r.honest), "unit": load.unit,
                     "better": "higher" if load.higher else "lower"}
            for n, figures in sorted(r.rounds.items()):
                yield dict(figures, row="raw", round=n, status="ok", **fixed)
            summary = dict(fixed, row="summary", rounds=len(r.rounds),
                           status=r.trouble or "ok")
            if r.ok:
                summary.update((f, r.median(f)) for f in FIELDS + list(also)
                               if f not in fixed and f not in summary
                               and f not in ("round", "lo", "hi"))
                summary["lo"], summary["hi"] = r.span()
            yield summary


def number(x):
    if x is None:
        return "-"
    if abs(x) >= 100:
        return "%.0f" % x
    return "%.1f" % x if abs(x) >= 10 else "%.2f" % x


def ratio(x):
    return "-" if x is None else "%.2f" % x


def scaled(x, by):
    return None if x is None else x / by


def spread(row):
    middle, (lo, hi) = row.median(), row.span()
    if len(row.rounds) < 2 or not middle:
        return "-"
    return "%+.0f..%+.0f%%" % ((lo / middle - 1) * 100,
                               (hi / middle - 1) * 100)


def _per_flush(row):
    asked = (row.median("flushes") or 0) + (row.median("fua") or 0)
    done = row.median("host_flushes")
    return "-" if asked < 10 or done is None else "%.2f" % (done / asked)


def _flushes_each(row):
    asked = (row.median("flushes") or 0) + (row.median("fua") or 0)
    done = row.median("host_flushes")
    return "%.2f" % (asked / done) if done else "-"


def amplification(row):
    data, written = row.median("distinct_bytes"), row.median("host_bytes")
    return "-" if not data or written is None else "%.2f" % (written / data)


def align(lines):
    widths = [max(len(line[i]) for line in lines)
              for i in range(len(lines[0]))]
    return ["  " + "  ".join(
        [line[0].ljust(widths[0])]
        + [c.rjust(w) for c, w in zip(line[1:], widths[1:])]).rstrip()
        for line in lines]


def write_csv(path, results, also=()):
    """@also: names of fields that only these results have."""
    with open(path, "w", encoding="utf-8", newline="") as f:
        out = csv.DictWriter(f, FIELDS + list(also), extrasaction="ignore")
        out.writeheader()
        for result in results:
            out.writerows(
                {k: round(v, 6) if isinstance(v, float) else v
                 for k, v in row.items()} for row in result.csv_rows(also))


def read_csv(path):
    """{(load, server): Row}, from the raw rows.  ValueError if it is none."""
    with open(path, encoding="utf-8", newline="") as f:
        reader = csv.DictReader(f)
        missing = {"row", "load", "server", "round", "value", "better"} - set(
            reader.fieldnames or [])
        if missing:
            raise ValueError("not a CSV of scripts/bench: no column '%s'"
                             % sorted(missing)[0])
        rows = {}
        for line in reader:
            if line["row"] != "raw":
                continue
            key = line["load"], line["server"]
            row = rows.setdefault(key, Row(
                line["server"], line.get("group"), line.get("honest") == "1",
                line["better"] == "higher"))
            row.unit = line.get("unit") or ""
            row.rounds[int(line["round"])] = {
                k: float(v) for k, v in line.items()
                if k not in _TEXT and k and v}
    if not rows:
        raise ValueError("no measured rounds in it")
    return rows


def compare(path_a, path_b):
    """Lines that say what differs between two runs by more than its spread:
    the two ranges, lowest to highest round, do not overlap.
    """
    a, b = read_csv(path_a), read_csv(path_b)
    lines, differ, few = [], 0, 0
    for key in [k for k in a if k in b]:
        x, y = a[key], b[key]
        if min(len(x.rounds), len(y.rounds)) < 3:
            few += 1
            verdict = "too few rounds"
        else:
            (xlo, xhi), (ylo, yhi) = x.span(), y.span()
            verdict = "within the spread"
            if yhi < xlo or ylo > xhi:
                differ += 1
                verdict = "BETTER" if (ylo > xhi) == x.higher else "WORSE"
        moved = (y.median() / x.median() - 1) * 100 if x.median() else 0.0
        # What did not change itself shows how much the machine did.
        ref = key[0], "nbdkit-file"
        machine = "-"
        if key != ref and ref in a and ref in b and a[ref].median():
            machine = "%+.1f%%" % (
                (b[ref].median() / a[ref].median() - 1) * 100)
        lines.append([key[0], key[1], number(x.median()), number(y.median()),
                      x.unit, "%+.1f%%" % moved, machine, verdict])
    head = ["load", "server", "A", "B", "unit", "B against A",
            "nbdkit-file too", "verdict"]
    out = align([head] + lines) if lines else []
    for name, only, other in (("A", a, b), ("B", b, a)):
        for key in only:
            if key not in other:
                out.append("  only in %s: %s %s" % ((name,) + key))
    out.append("%d of %d differ by more than their spread%s" % (
        differ, len(lines),
        "; %d have fewer than 3 rounds" % few if few else ""))
    return out
