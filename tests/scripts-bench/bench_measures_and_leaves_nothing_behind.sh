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
