#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# On paper, as CSV, as a picture and in the page; and what the requests were
# meant to do is what the figures say.

. "$(dirname "$0")/lib.sh"
need nbdkit qemu-nbd cc pkg-config pgrep gnuplot

for number in 1 3; do
    seeds_quickly "$number" --csv csv --html page
    [ "$status" -eq 0 ] || fail "$number: exit status $status"
    mv out "out$number"
    grep -q '^\[1/[0-9]*\] .* left$' err || fail "$number: no progress"
done
nothing_is_left

python3 - <<'EOP' || fail "see above"
import csv
import re

NAMES = {"1": ("bounded", ["nbdkit-file", "ours-nolimit", "nbdkit-file-none",
                           "sync-16M", "sync-2M", "ours", "ours-2M"]),
         "3": ("scattered", ["mmap", "nbdkit-file", "qemu-wb", "qemu-none",
                             "ours", "ours-nolimit", "ours-direct",
                             "ours-osync", "ours-unsafe"])}
LABELS = {"1": ["nobody (nbdkit file)", "client flushes every 2 MiB",
                "ours (its default)"],
          "3": ["mmap and msync, as in 2002", "ours osync",
                "ours unsafe (unsafe)"]}
MIB = 1 << 20
rows = {}
for number, (table, names) in NAMES.items():
    for folder in ("csv", "page"):
        with open("%s/%s.csv" % (folder, table)) as f:
            lines = list(csv.DictReader(f))
    assert [r["server"] for r in lines if r["row"] == "raw"] == names, lines
    rows[table] = {r["server"]: r for r in lines if r["row"] == "raw"}
    with open("page/%s.svg" % table) as f:
        svg = f.read()
    with open("out" + number) as f:
        printed = f.read()
    for label in LABELS[number]:
        assert label in svg, (table, label)
        line = [x for x in printed.splitlines() if x.startswith("  " + label)]
        assert len(line) == 1 and len(re.findall(r"\d", line[0])) > 5, line
with open("page/index.html") as f:
    page = f.read()  # Of the last run.
assert '<h2 id="scattered">' in page and "scattered.svg" in page
assert "2593 s" in page and "processor" in page and "nbdkit 1" in page


def number_in(table, row, field):
    return float(rows[table][row][field])


for row, flushes in ("nbdkit-file", 1), ("sync-16M", 1), ("sync-2M", 8):
    assert number_in("bounded", row, "flushes") == flushes, row
for row in rows["bounded"].values():
    assert float(row["distinct_bytes"]) == 16 * MIB, row
    assert 0 < float(row["flush_seconds"]) < float(row["seconds"]), row
# Nothing of it needs to be written within these few seconds, or 2 MiB at most.
if rows["bounded"]["nbdkit-file"]["dirty_at_flush"]:
    assert number_in("bounded", "nbdkit-file", "dirty_at_flush") == 16 * MIB
    assert number_in("bounded", "sync-2M", "dirty_at_flush") == 2 * MIB
    unsafe = rows["scattered"]["ours-unsafe"]
    assert float(unsafe["dirty_at_end"]) == float(unsafe["dirty_at_flush"]) \
        == float(unsafe["distinct_bytes"]), unsafe
# All of them get the same blocks, the program without a server too.
assert len({r["distinct_bytes"] for r in rows["scattered"].values()}) == 1
EOP
