#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Over ours nothing, and the disk made a flush; on UML's own disk all of it.

. "$(dirname "$0")/lib.sh"
need nbdkit cc pgrep gnuplot linux.uml qemu-storage-daemon mkfs.ext4 losetup
[ "$(id -u)" -eq 0 ] || { echo "needs root"; exit 77; }

seeds_quickly 2 --quick --rows uml-ubd,uml-barrier --csv csv --html page
! grep 'skipped: ' out || exit 77
[ "$status" -eq 0 ] || fail "exit status $status"
nothing_is_left

# Whoever says `sync` on this host meanwhile cleans what UML left, too.
for _ in 1 2 3; do
    left=$(python3 - <<'EOP'
import csv

for row in csv.DictReader(open("csv/guest-ext4.csv")):
    if row["row"] == "raw" and row["server"] == "uml-ubd":
        print(int(float(row["left_bytes"]) >= 8 << 20))
EOP
    )
    [ "$left" -eq 0 ] || break
    mkdir -p again
    seeds_quickly 2 --quick --rows uml-ubd --csv again
    cp again/guest-ext4.csv csv/
done
[ "$left" -eq 1 ] || fail "on UML's own disk everything was clean, thrice"

python3 - <<'EOP' || fail "see above"
import csv

for table, mib in ("guest-ext2", 8), ("guest-ext4", 8), ("guest-slow", 1):
    with open("page/%s.csv" % table) as f:
        rows = {r["server"]: r for r in csv.DictReader(f) if r["row"] == "raw"}
    assert list(rows) == ["uml-ubd", "uml-barrier"], rows
    row = rows["uml-barrier"]
    assert float(row["left_bytes"]) <= 1 << 20, row
    assert float(row["host_flushes"]) >= 1, row
    for row in rows.values():
        assert float(row["distinct_bytes"]) == mib << 20, row
        for name in ("guest_write_seconds", "guest_sync_seconds",
                     "host_sync_seconds", "value"):
            assert float(row[name]) > 0, (name, row)
        inside = sum(float(row["guest_%s_seconds" % step]) for step in
                     ("write", "sync", "device_sync"))
        assert float(row["value"]) > 0 and inside > 0, row
    with open("page/%s.svg" % table) as f:
        svg = f.read()
    assert "UML over ours, barrier" in svg and "UML ubd (unsafe)" in svg
EOP
grep -q '^  UML over ours, barrier .* 1.00 ' out || fail "no row: $(cat out)"
