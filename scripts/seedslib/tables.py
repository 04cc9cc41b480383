# SPDX-License-Identifier: BSD-3-Clause
"""The complaints as loads: what is measured, and what the tables say."""

from benchlib import host, loads, results, servers
from benchlib.results import number, scaled

MIB = host.MIB
# Fields that only we have, after those of bench.
FIELDS = ["work_seconds", "host_sync_seconds", "cost_percent",
          "flush_mb_per_s", "guest_write_seconds", "guest_sync_seconds",
          "guest_device_sync_seconds", "host_write_seconds",
          "host_flush_seconds", "left_bytes", "boot_seconds"]


class Seed(loads.Load):
    """One table.

    number: the complaint that it belongs to.
    columns: function of the result that makes bench's list of columns.
    parts: [(what, field)] of the value, for the picture, in their order.
    old: what was measured then, one sentence.
    reference: name of the row that the others are compared with.
    """

    def __init__(self, number_, *args, columns, parts, old, reference,
                 rows, **kwargs):
        super().__init__(*args, "quick", (rows, [], []), unit="s",
                         higher=False, in_flight=1, **kwargs)
        self.number = number_
        self.columns = columns
        self.parts = parts
        self.old = old
        self.notes = ["Then: %s." % old]
        self.reference = reference


class Result(results.Result):
    """In the order of the table's definition, with its own columns."""

    def columns(self):
        return self.load.columns(self)

    def in_order(self):
        return [r for r in self.rows.values() if r.ok]

    def text(self):
        return super().text() + "\n  then: " + self.load.old

    def cost(self, row):
        """Percent of time more than the reference, inside each round."""
        better = row.ratio(self.rows.get(self.load.reference))
        return None if not better else (1 / better - 1) * 100


def cost_cell(result):
    def cell(row):
        cost = result.cost(row)
        return "-" if cost is None else "%+.0f %%" % cost
    return cell


def median_of(field, by=1):
    return lambda row: number(scaled(row.median(field), by))


def count_of(field):
    def cell(row):
        count = row.median(field)
        return "-" if count is None else "%.0f" % count
    return cell


# ------------------------------------------------------------ 1: bounded ---

_THEN_BOUNDED = {"sync-16M": "+20 %", "sync-2M": "+28 %",
                 "nbdkit-file": "+0 %"}


def _bounded_columns(result):
    return [
        ("seconds", lambda r: number(r.median())),
        ("spread", results.spread),
        ("cost", cost_cell(result)),
        ("cost in 2007", lambda r: _THEN_BOUNDED.get(r.server, "-")),
        ("last flush s", median_of("flush_seconds")),
        ("flushes", count_of("flushes")),
        ("disk flushes", count_of("host_flushes")),
        ("peak dirty MB", median_of("peak_dirty", 1e6)),
        ("dirty at last flush MB", median_of("dirty_at_flush", 1e6)),
    ]


def _bounded_rows():
    def every(n):
        return servers.ours(
            "sync-%dM" % n, "cache=barrier dirty-limit=0",
            label="client flushes every %d MiB" % n,
            client={"every": n * MIB})

    file = servers.Server("nbdkit-file", "file", label="nobody (nbdkit file)")
    none = servers.Server("nbdkit-file-none", "file", "cache=none",
                          label="nbdkit file cache=none")
    return [
        file,
        servers.ours("ours-nolimit", "cache=barrier dirty-limit=0",
                     label="nobody (ours, dirty-limit=0)"),
        none, every(16), every(2),
        servers.ours("ours", "cache=barrier", label="ours (its default)"),
        servers.ours("ours-2M", "cache=barrier dirty-limit=2M",
                     label="ours, dirty-limit=2M"),
    ]


def bounded(scale, rounds):
    total = max(16, 1024 // scale) * MIB
    return Seed(
        1, "bounded", "who bounds what is dirty: %d MiB in order in 1 MiB "
        "requests, one at a time, then a flush" % (total // MIB),
        columns=_bounded_columns, rows=_bounded_rows(),
        parts=[("writes", "work_seconds"), ("last flush", "flush_seconds")],
        old="2007: a sync every 2 MB cost 28 % more than none, every 16 MB "
        "20 %", reference="nbdkit-file", command="fill", seconds=2,
        rounds=rounds, params={"bs": MIB, "depth": 1, "total": total})


# ---------------------------------------------------------- 3: scattered ---

def _scattered_columns(_result):
    return [
        ("work s", median_of("work_seconds")),
        ("flush s", median_of("flush_seconds")),
        ("both s", lambda r: number(r.median())),
        ("spread", results.spread),
        ("dirty at the flush MB", median_of("dirty_at_flush", 1e6)),
        # Who promises nothing does not flush.
        ("flush MB/s", lambda r: number(
            r.median("flush_mb_per_s") if r.honest or r.group == "raw"
            else None)),
        ("host sync after s", median_of("host_sync_seconds")),
        ("disk flushes", count_of("host_flushes")),
        ("disk bytes x data", results.amplification),
    ]


def _scattered_rows():
    s = servers
    return [
        s.Server("mmap", "mmap", group="raw",
                 label="mmap and msync, as in 2002"),
        s.Server("nbdkit-file", "file", label="nbdkit file"),
        s.Server("qemu-wb", "qemu", "--cache=writeback --aio=io_uring",
                 label="qemu-nbd writeback"),
        s.Server("qemu-none", "qemu", "--cache=none --aio=io_uring",
                 direct=True, label="qemu-nbd none"),
        s.ours("ours", "cache=barrier", label="ours barrier"),
        s.ours("ours-nolimit", "cache=barrier dirty-limit=0",
               label="ours barrier, dirty-limit=0"),
        s.ours("ours-direct", "cache=barrier direct=true",
               label="ours barrier, direct=true"),
        s.ours("ours-osync", "cache=osync", label="ours osync"),
        s.ours("ours-unsafe", "cache=unsafe", label="ours unsafe"),
    ]


def scattered(scale, rounds):
    area = max(16, 1024 // scale) * MIB
    count = max(1000, 100000 // scale)
    return Seed(
        3, "scattered", "%d random 8 KiB read/modify/writes in %d MiB "
        "(cached, but where the page cache is bypassed; NBD at depth 32), "
        "then a flush"
        % (count, area // MIB),
        columns=_scattered_columns, rows=_scattered_rows(),
        parts=[("work", "work_seconds"), ("flush", "flush_seconds"),
               ("host sync after it", "host_sync_seconds")],
        old="2002: 529 s of work, then 2593 s of sync", reference="mmap",
        command="scatter", warm=area, seconds=4, rounds=rounds,
        params={"bs": 8192, "depth": 32, "area": area, "count": count})
