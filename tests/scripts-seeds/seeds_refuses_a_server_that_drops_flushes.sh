#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# nbdkit file behind a filter that discards flushes and FUA, presented as
# honest.  The same server without the filter has to pass.

. "$(dirname "$0")/lib.sh"
need nbdkit cc pkg-config pgrep

plugin=$(nbdkit file --dump-plugin | sed -n 's/^path=//p')
for number in 1 3; do
    seeds_quickly "$number" --rows cheat,nbdkit-file --csv csv \
        --server 'cheat=--filter=fua fuamode=discard'
    ! grep 'honesty is not checked' out || exit 77
    [ "$status" -eq 1 ] || fail "$number: exit status $status"
    grep -q '! cheat: refused: ' out || fail "$number: it is not refused"
    grep -qE '^  (nobody \()?nbdkit file' out || fail "$number: the other one"
    ! grep -q '^  cheat ' out || fail "$number: the cheat has a row"
done
! grep -h '^raw,[a-z]*,cheat,' csv/*.csv || fail "the cheat has figures"
nothing_is_left
