#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need nbdinfo

start_serve disk.img --create 1M || fail "did not start"
uri=$(printed uri)
inode=$(stat -c %i disk.img.sock)
if "$src/scripts/serve" disk.img >second 2>&1; then
    fail "a second server started"
fi
grep -q 'already listening' second || fail "the second says: $(cat second)"
[ "$(stat -c %i disk.img.sock)" = "$inode" ] || fail "the socket was replaced"
[ "$(nbdinfo --size "$uri")" = 1048576 ] || fail "the first does not answer"
stop_serve

# What a killed server leaves: a socket on which nobody accepts.
perl -MSocket -e 'socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die;
    bind($s, pack_sockaddr_un("disk.img.sock")) or die'
[ -S disk.img.sock ] || fail "cannot make a stale socket"
start_serve disk.img || fail "a stale socket was in the way"
[ "$(nbdinfo --size "$uri")" = 1048576 ] || fail "does not answer"
stop_serve
is_gone disk.img.sock

# What is not a socket is not ours to remove.
echo precious >disk.img.sock
refused 'is not a socket' disk.img
[ "$(cat disk.img.sock)" = precious ] || fail "a file was overwritten"
