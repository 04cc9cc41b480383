#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need nbdkit fio cc pkg-config pgrep

measure --only flush-clean,fsync1-x1 --servers nbdkit-file --rounds 1 \
    --time 0.2 --csv all.csv --html page
[ "$status" -eq 0 ] || fail "exit status $status"
grep -q '^raw,flush-clean,nbdkit-file,' all.csv || fail "no round in the CSV"
grep -q '^summary,fsync1-x1,nbdkit-file,' all.csv || fail "no summary"
grep -q '<h2 id="fsync1-x1">' page/index.html || fail "no table in the page"
nothing_is_left

# By turns, with one that does not start.
measure --paired --only write-qd32,fsync1-x1 --rounds 2 --time 0.1 \
    --server 'broken=cache=nosuch' --csv pairs.csv \
    --servers nbdkit-file,broken,nbdkit-file-again,nbdkit-null
[ "$status" -eq 1 ] || fail "by turns: exit status $status"
grep -q '^  ! broken: does not start: ' out || fail "what does not start"
for server in nbdkit-file nbdkit-file-again nbdkit-null; do
    [ "$(grep -c "^raw,.*,$server," pairs.csv)" -eq 4 ] ||
        fail "$server: not every round is in the CSV"
done
nothing_is_left
