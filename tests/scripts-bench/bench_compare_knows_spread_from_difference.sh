#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"

# csv FILE SERVER BETTER VALUE...: one line for each round.
csv() {
    local file=$1 server=$2 better=$3 round=0 value
    shift 3
    [ -s "$file" ] || echo row,load,server,round,value,unit,better >"$file"
    for value; do
        echo "raw,load,$server,$((round++)),$value,IOPS,$better" >>"$file"
    done
}

csv a.csv overlaps higher 100 110 120
csv b.csv overlaps higher 119 130 140
csv a.csv faster higher 100 110 120
csv b.csv faster higher 121 130 140
csv a.csv slower lower 100 110 120
csv b.csv slower lower 121 130 140
csv a.csv once higher 100
csv b.csv once higher 900

bench --compare a.csv b.csv
[ "$status" -eq 0 ] || fail "exit status $status"
grep -q ' overlaps .* within the spread$' out || fail "overlapping ranges"
grep -q ' faster .* BETTER$' out || fail "ranges apart, more is better"
grep -q ' slower .* WORSE$' out || fail "ranges apart, less is better"
grep -q ' once .* too few rounds$' out || fail "a single round"
