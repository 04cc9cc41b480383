#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# nbdkit file behind a filter that discards flushes and FUA, presented as
# honest.  The same server without the filter has to pass.

. "$(dirname "$0")/lib.sh"
need nbdkit fio cc pkg-config pgrep

file_plugin=$(nbdkit file --dump-plugin | sed -n 's/^path=//p')

# check LOAD WORDS...
check() {
    local load=$1
    shift
    measure --only "$load" --plugin "$file_plugin" --time 0.3 --rounds 1 \
        --server 'cheat=--filter=fua fuamode=discard' \
        --servers cheat,nbdkit-file "$@"
    ! grep 'honesty is not checked' out || exit 77
    [ "$status" -eq 1 ] || fail "$load: exit status $status"
    grep -q '! cheat: refused: ' out || fail "$load: the cheat is not refused"
    grep -q '^  nbdkit-file ' out || fail "$load: the honest one has no row"
    ! grep -q '^  cheat ' out || fail "$load: the cheat has a row"
}

for load in fsync1-x4 fua-x1 fill-qd8; do
    check "$load"
done
for load in fsync1-x4 fua-x1; do
    check "$load" --paired
done
nothing_is_left
