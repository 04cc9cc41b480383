#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need nbdkit cc pkg-config pgrep

plugin=${UBD_BUILD:-$src/build}/plugins/nbdkit-ubd-plugin.so
measure --plugin "$plugin" --targets --only flush-clean --time 0.05 --html page
[ "$status" -eq 0 ] || fail "exit status $status"
grep -qE '^  5 +flush-clean +ours against nbdkit-null: .*\) +(yes|NO)$' out ||
    fail "not measured"
grep -qE '^  1 +read-qd32 .* not measured$' out || fail "what was not asked for"
grep -qE '^  3 +fsync1-x1 .*nbdkit-file-again .*the same server twice' out ||
    fail "no control"
grep -q '<h2 id="targets">' page/index.html || fail "no targets in the page"
nothing_is_left
