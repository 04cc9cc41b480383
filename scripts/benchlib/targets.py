# SPDX-License-Identifier: BSD-3-Clause
"""The project's speed targets that bench can measure, and how they did.

The list at the end is the one place where they are written down as numbers.
Target 12 is about guests and is measured elsewhere.
"""

import statistics

from . import servers

# Servers that promise durability and keep it.
PEERS = ("nbdkit-file", "nbdkit-file-none", "qemu-wb", "qemu-wb-threads",
         "qemu-none", "qemu-none-threads", "nbd-server")
QEMU = ("qemu-wb", "qemu-wb-threads", "qemu-none", "qemu-none-threads")
DIRECT = ("qemu-none", "qemu-none-threads")
UNBOUNDED = ("nbdkit-file", "qemu-wb", "qemu-wb-threads", "nbd-server")


class NoFigure(Exception):
    """The text says why."""


def _row(result, name):
    row = result.rows.get(name)
    if not row or not row.ok:
        raise NoFigure("%s: %s" % (name, row and row.trouble
                                   or "not measured"))
    return row


class Times:
    """How many times better one row is than the best of others, which is the
    one with the best median.
    """

    def __init__(self, row, than, field="value"):
        self.row, self.field = row, field
        self.than = than if isinstance(than, tuple) else (than,)
        self.rows = (row,) + self.than
        self.what = "best qemu-nbd" if than is QEMU else (
            "best honest peer" if than is PEERS else
            "best unbounded server" if than is UNBOUNDED else
            "best of " + " ".join(than) if isinstance(than, tuple) else than)
        self.what = "%s%s against %s" % (
            "" if field == "value" else "flush alone, ", row, self.what)

    def values(self, result, _plugin):
        mine = _row(result, self.row)
        higher = self.field == "value" and result.load.higher
        others = [r for r in map(result.rows.get, self.than)
                  if r and r.ok and r.median(self.field) is not None]
        if not others:
            _row(result, self.than[0])
            raise NoFigure("no %s" % self.field)
        other = (max if higher else min)(
            others, key=lambda r: r.median(self.field))
        for n in mine.rounds:
            if n in other.rounds:
                a, b = (x.rounds[n][self.field] for x in (mine, other))
                # A flush of no time at all is as good as one microsecond.
                a, b = (a, b) if higher else (b, a)
                yield a / max(b, 1e-6)


class Within:
    """One figure of a row divided by another one, or by a number."""

    def __init__(self, row, field, by, what):
        self.row, self.field, self.by = row, field, by
        self.rows = (row,)
        self.what = "%s, %s" % (row, what)

    def values(self, result, _plugin):
        for r in _row(result, self.row).rounds.values():
            above = r.get(self.field)
            below = r.get(self.by) if isinstance(self.by, str) else self.by
            if above is not None and below:
                yield above / below


class Peak:
    """Peak dirty bytes, divided by those allowed: the default limit, and the
    requests in flight.
    """

    rows = ("ours",)
    what = "ours, peak dirty / (limit + in flight)"

    @staticmethod
    def values(result, plugin):
        limit = servers.default_limit(plugin)
        if limit is None:
            raise NoFigure("the plugin's help does not say its dirty-limit")
        allowed = limit + result.load.params["depth"] * result.load.params[
            "bs"]
        for r in _row(result, "ours").rounds.values():
            if r.get("peak_dirty") is not None:
                yield r["peak_dirty"] / allowed


class Check:
    """One line of the table of targets.

    at_least, at_most, below: what the median of the rounds has to be.
    needs: the option that the plugin must have for this to mean something.
    With none of the three it is a control: a server against itself, so that
    one sees what difference is none.
    """

    def __init__(self, number, load, figure, at_least=None, at_most=None,
                 below=None, needs=None, note=""):
        self.number, self.load, self.figure = number, load, figure
        self.at_least, self.at_most, self.below = at_least, at_most, below
        self.needs, self.note = needs, note

    def target(self):
        for word, x in (("at least", self.at_least),
                        ("at most", self.at_most), ("below", self.below)):
            if x is not None:
                return "%s: %s %g%s" % (self.figure.what, word, x,
                                        self.note and " (%s)" % self.note)
        return "%s: the same server twice" % self.figure.what

    def verdict(self, x):
        if (self.at_least, self.at_most, self.below) == (None, None, None):
            return "control"
        return "yes" if self._reached(x) else "NO"

    def _reached(self, x):
        return ((self.at_least is None or x >= self.at_least)
                and (self.at_most is None or x <= self.at_most)
                and (self.below is None or x < self.below))

    def missing(self, plugin):
        """Why it cannot be measured with this plugin, or ""."""
        if self.needs and not servers.plugin_has(plugin, self.needs):
            return "this plugin has no " + self.needs
        return ""

    def line(self, found, plugin):
        """The cells of the table; @found: {load: Result}."""
        measured, verdict = "-", self.missing(plugin)
        if verdict:
            verdict = "skipped: " + verdict
        elif self.load not in found:
            verdict = "not measured"
        else:
            try:
                values = list(self.figure.values(found[self.load], plugin))
                if not values:
                    raise NoFigure("no round has this figure")
                middle = statistics.median(values)
                measured = "%s (%s..%s)" % tuple(
                    _number(x) for x in (middle, min(values), max(values)))
                verdict = self.verdict(middle)
            except NoFigure as e:
                why = str(e)
                verdict = why if "skipped: " in why else "no figure: " + why
        return [str(self.number), self.load, self.target(), measured, verdict]


def _number(x):
    # 0.95 is a limit, so 0.949 must not look like it.
    return "%.0f" % x if x >= 100 else "%.1f" % x if x >= 10 else "%.3f" % x


HEAD = ["target", "load", "what", "median (min..max)", "reached"]


def lines(done, plugin):
    found = {result.load.name: result for result in done}
    return [check.line(found, plugin) for check in TARGETS]


def text(done, plugin):
    out = ["", "targets ('A against B': how many times better A is, inside "
           "each round)"]
    cells = [HEAD] + lines(done, plugin)
    widths = [max(len(line[i]) for line in cells) for i in range(len(HEAD))]
    out += ["  " + "  ".join(c.ljust(w) for c, w in zip(line, widths)).rstrip()
            for line in cells]
    return "\n".join(out)


def needed(plugin):
    """({load: names of its servers}, {load: why it is not among them})."""
    rows, without = {}, {}
    for check in TARGETS:
        why = check.missing(plugin)
        if why:
            without[check.load] = why
        else:
            rows.setdefault(check.load, set()).update(check.figure.rows)
    return rows, without


def _control(number, load):
    return Check(number, load, Times("nbdkit-file-again", "nbdkit-file"))


def _syncs(row):
    return Within(row, "host_flushes", "flushes", "disk flushes per flush")


TARGETS = [
    Check(1, "read-qd32", Times("ours", "nbdkit-null"), 0.95),
    Check(1, "read-qd32", Times("ours", "nbdkit-file"), 1.0),
    Check(1, "read-qd32x4", Times("ours", "nbdkit-null"), 0.95),
    Check(1, "read-qd32x4", Times("ours", "nbdkit-file"), 1.0),
    _control(1, "read-qd32x4"),
    Check(2, "write-qd32", Times("ours", "nbdkit-file"), 1.0),
    _control(2, "write-qd32"),
    Check(2, "write-qd32", Times("ours", QEMU), 1.15),
    Check(3, "fsync1-x1", Times("ours", "nbdkit-file"), 1.0),
    _control(3, "fsync1-x1"),
    Check(3, "fsync1-x1", Times("ours-uring", "nbdkit-file"), 0.85),
    Check(4, "fsync1-x4", Times("ours", PEERS), 1.0),
    Check(4, "fsync1-x4", _syncs("ours"), below=1),
    Check(4, "fsync1-x16", Times("ours", PEERS), 1.1),
    Check(4, "fsync1-x16", _syncs("ours"), below=1),
    Check(4, "slow-x16", Times("ours", "nbdkit-file"), 2.5),
    # The disk's counter has the flushes of others, too; hence not 0.
    Check(5, "flush-clean", _syncs("ours"), at_most=0.01, note="none of ours"),
    Check(5, "flush-clean", Times("ours", "nbdkit-null"), 0.95),
    Check(6, "fua-dirty", Within("ours", "p99_us", "clean_p99_us",
                                 "p99 / p99 on a clean disk"), at_most=2),
    # With a limit most is on the disk already, perhaps in a cache of its own;
    # without one it is still dirty on the host.
    Check(6, "fua-dirty", Within("ours-nolimit", "p99_us", "clean_p99_us",
                                 "p99 / p99 on a clean disk"), at_most=2,
          needs="dirty-limit"),
    # Less time is better, so 1.05 times the time is 0.95 times as good.
    Check(7, "fill-qd1", Times("ours", "nbdkit-file-none"), 0.952,
          needs="dirty-limit"),
    Check(7, "fill-qd1", Times("ours", UNBOUNDED), 2.0, needs="dirty-limit"),
    Check(7, "fill-qd1", Peak, at_most=1, needs="dirty-limit"),
    Check(7, "fill-qd8", Times("ours", "nbdkit-file-none"), 0.952,
          needs="dirty-limit"),
    Check(7, "fill-qd8", Times("ours", UNBOUNDED), 2.0, needs="dirty-limit"),
    Check(7, "fill-qd8", Peak, at_most=1, needs="dirty-limit"),
    Check(8, "write-qd32", Times("ours", "ours-nolimit"), 0.97,
          needs="dirty-limit"),
    Check(9, "scatter", Times("ours", "nbdkit-file", "flush_seconds"), 5.0,
          needs="dirty-limit"),
    Check(9, "scatter", Times("ours", "nbdkit-file"), 1.0,
          needs="dirty-limit"),
    Check(9, "scatter", Times("ours", PEERS), 1.1, needs="dirty-limit"),
    Check(9, "scatter", Within("ours", "host_bytes", "distinct_bytes",
                               "disk bytes x data"), at_most=1.1,
          needs="dirty-limit"),
    Check(10, "read-flush", Within("ours", "value", 1000, "p99 in ms"),
          below=5),
    Check(10, "read-flush", Times("ours", "nbdkit-file"), 1.0),
    Check(11, "direct-read", Times("ours-direct", DIRECT), 1.3),
    Check(11, "direct-write", Times("ours-direct", DIRECT), 1.3),
    Check(13, "write-qd32", Times("ours-metrics", "ours"), 0.95,
          needs="metrics"),
    Check(13, "write-qd32", Times("ours-trace", "ours"), 0.95,
          needs="trace"),
]
