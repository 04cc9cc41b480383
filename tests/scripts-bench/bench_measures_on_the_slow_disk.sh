#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# nbdkit file sends a flush of the disk for each flush, no more and no less, and
# the disk cannot do more than 125 in a second.

. "$(dirname "$0")/lib.sh"
need nbdkit fio pgrep

measure --only slow-x4,slow-x16-ext4 --servers nbdkit-file --rounds 1 \
    --time 0.2 --csv all.csv
! grep 'skipped: slow-disk' out || exit 77
[ "$status" -eq 0 ] || fail "exit status $status"
grep -q 'flushes per disk flush' out || fail "no column for it"
python3 - <<'EOF' || fail "see above"
import csv

rows = [r for r in csv.DictReader(open("all.csv")) if r["row"] == "raw"]
assert [r["load"] for r in rows] == ["slow-x4", "slow-x16-ext4"], rows
asked, done, seconds = (
    float(rows[0][name]) for name in ("flushes", "host_flushes", "seconds"))
# Some may be running when the counters are read.
assert asked - 4 <= done <= asked + 4, rows[0]
assert 1 <= done <= seconds * 125 + 4, rows[0]
EOF
nothing_is_left
