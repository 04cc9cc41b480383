#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"

echo 'row,load' >other.csv

# refused PATTERN ARGUMENTS...
refused() {
    local pattern=$1
    shift
    bench "$@"
    [ "$status" -eq 2 ] || fail "$*: exit status $status, expected 2"
    [ "$(wc -l <err)" -eq 1 ] || fail "$*: not one line: $(cat err)"
    grep -qE -- "$pattern" err || fail "$*: says '$(cat err)'"
    [ ! -s out ] || fail "$*: prints on stdout"
}

refused bogus --bogus
refused word word
refused 'nope.*expected one of.*fsync1-x1' --only nope
refused 'nope.*expected one of.*nbdkit-file' --servers nope
refused 'above 0' --rounds 0
refused 'above 0' --time soon
refused 'at least 64M' --size 1M
refused 'is not a size' --size big
refused 'not a folder' --dir missing
refused 'NAME=WORDS' --server nameonly
refused 'no file .*expected plugin=PATH' --server other=plugin=missing.so
refused 'is taken' --server ours=cache=unsafe
refused 'not allowed' --quick --full
refused 'at least 5' --targets --rounds 4
refused 'not allowed' --targets --servers ours
refused 'fill-qd1 cannot be measured by turns, only read-qd1' \
    --paired --only write-qd32,fill-qd1
refused 'none of these servers' --paired --only write-qd32 --servers raw
refused 'none of these servers' --only fill-qd1 --servers raw
refused 'missing.csv' --compare missing.csv other.csv
refused 'not a CSV of scripts/bench' --compare other.csv other.csv
refused 'cannot write' --csv missing/a.csv
