#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need nbdinfo meson ninja

# A tiny project with our scripts, whose build is a copy of the plugin.
mkdir -p project/plugins
cp -r "$src/scripts" project/
cp "$UBD_PLUGIN" project/original
cat >project/meson.build <<'END'
project('copy', version: '1')
subdir('plugins')
END
cat >project/plugins/meson.build <<'END'
custom_target('copy', input: '../original', output: 'nbdkit-ubd-plugin.so',
  command: ['cp', '@INPUT@', '@OUTPUT@'], build_by_default: true)
END
unset UBD_PLUGIN
src=$dir/project
truncate -s 1M disk.img
built=project/build/plugins/nbdkit-ubd-plugin.so

start_serve disk.img || fail "did not build and start"
[ "$(nbdinfo --size "$(printed uri)")" = 1048576 ] || fail "does not answer"
stop_serve
[ "$(head -n 1 out)" = "serving $dir/disk.img" ] ||
    fail "the build is not quiet"
[ ! -s err ] || ! grep -i ninja err || fail "the build is not quiet"
[ "$(readlink project/plugin.so)" = "${built#project/}" ] || fail "no link"

first=$(stat -c %y "$built")
start_serve disk.img || fail "did not start again"
stop_serve
[ "$(stat -c %y "$built")" = "$first" ] || fail "built what was not old"

# Newer than the copy, whatever the clock's grain.
touch -d '1 minute' project/original
start_serve disk.img || fail "did not start after a change"
stop_serve
[ "$(stat -c %y "$built")" != "$first" ] || fail "did not build what was old"

rm project/original
refused 'the build failed' new.img --create 1M
is_gone new.img new.img.sock
