#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# And nowhere else in the file; and it refuses a file without them.

. "$(dirname "$0")/lib.sh"
need nbdkit cc pkg-config

begin='<!-- Made by scripts/seeds --markdown, from here -->'
end='<!-- to here -->'
printf '%s\n' before "$begin" 'old figures' "$end" after >section.md

seeds_quickly 1 --rows nbdkit-file,ours --markdown section.md
[ "$status" -eq 0 ] || fail "exit status $status"
[ "$(sed -n 1,2p section.md)" = "before
$begin" ] || fail "what was before it"
[ "$(tail -n 2 section.md)" = "$end
after" ] || fail "what was after it"
! grep -q 'old figures' section.md || fail "the old figures are there"
for text in 'scripts/seeds 1 --rows' '^| nobody (nbdkit file) |.* +0 % |' \
    '^| ours (its default) |' '2007' "$(date +%Y-)"; do
    grep -qF -e "${text#^}" section.md || grep -qE -- "$text" section.md ||
        fail "no '$text'"
done

printf '%s\n' a b >other.md
seeds 1 --markdown other.md
[ "$status" -eq 2 ] || fail "a file without the marks: status $status"
[ "$(wc -l <err)" -eq 1 ] || fail "not one line: $(cat err)"
[ "$(cat other.md)" = "a
b" ] || fail "it changed a file without the marks"
