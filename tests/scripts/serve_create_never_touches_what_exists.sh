#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"

echo precious >disk.img
touch -d '2001-02-03 04:05:06' disk.img
before=$(stat -c '%i %s %Y %Z' disk.img)
refused "'.*/disk\.img' exists already" disk.img --create 1G
[ "$(cat disk.img)" = precious ] || fail "the content changed"
[ "$(stat -c '%i %s %Y %Z' disk.img)" = "$before" ] || fail "the file changed"
is_gone disk.img.sock

: >empty.img
refused 'exists already' empty.img --create 1M
[ ! -s empty.img ] || fail "an empty file grew"

ln -s target.img link.img
refused 'exists already' link.img --create 1M
is_gone target.img
[ -L link.img ] || fail "the link is gone"

mkdir folder.img
refused 'exists already' folder.img --create 1M

# Also not if it appears after the first look: here, just before it is made.
mkdir bin
cat >bin/dd <<END
#!/bin/sh
echo precious >"$dir/late.img"
exec $(command -v dd) "\$@"
END
chmod +x bin/dd
PATH=$dir/bin:$PATH refused "cannot create '.*/late\.img'" \
    late.img --create 1M
[ "$(cat late.img)" = precious ] || fail "a late file changed"
