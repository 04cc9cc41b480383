#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need meson ninja gcc

# A tiny project with our scripts and tests that pass, fail and skip.
mkdir -p project/plugins
cp -r "$src/scripts" project/
cat >project/meson.build <<'END'
project('tiny', 'c', default_options: ['werror=true'])
subdir('plugins')
sh = find_program('sh')
test('good', sh, args: ['-c', 'exit 0'], suite: 'fine')
test('other', sh, args: ['-c', 'exit 0'], suite: 'fine')
test('bad', sh, args: ['-c', 'echo the reason; exit 3'], suite: 'broken')
test('absent', sh, args: ['-c', 'echo no device; exit 77'], suite: 'absent')
END
cat >project/plugins/meson.build <<'END'
shared_module('nbdkit-ubd-plugin', 'p.c', name_prefix: '')
END
echo 'extern int made;' >project/plugins/p.c

# summary EXPECTED_STATUS EXPECTED_LAST_LINE ARGUMENTS...
summary() {
    local want_status=$1 want=$2 status=0
    shift 2
    # shellcheck disable=SC2065 # It is not the shell's test.
    project/scripts/test "$@" >out 2>err || status=$?
    [ "$(tail -n 1 out)" = "$want" ] ||
        fail "test $*: last line '$(tail -n 1 out)', expected '$want'"
    [ "$status" -eq "$want_status" ] || fail "test $*: status $status"
    [ "$(grep -c ' passed, .* failed, ' out)" -eq 1 ] || fail "two summaries"
}

summary 0 '2 passed, 0 failed, 0 skipped' --suite fine
grep -q 'good.*OK' out || fail "no line for a test that passed"

summary 1 '1 passed, 1 failed, 0 skipped' good bad
grep -q 'the reason' err || fail "a failure does not show its output"

summary 0 '2 passed, 0 failed, 1 skipped' --suite fine --suite absent
grep -q 'no device' err || fail "a skip does not show its reason"

# Nothing that passed is no success.
summary 1 '0 passed, 0 failed, 1 skipped' absent
summary 1 '0 passed, 0 failed, 0 skipped' --suite no_such_suite
summary 1 '0 passed, 0 failed, 0 skipped' no_such_test

# Nor is a build that fails, whatever the last run left behind.
echo 'broken' >>project/plugins/p.c
summary 1 '0 passed, 1 failed, 0 skipped' --suite fine
