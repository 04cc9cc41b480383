#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"

# The server itself refuses this word.
refused 'no_such_word' new.img --create 1M no_such_word=1
[ "$serve_status" -eq 1 ] || fail "status $serve_status is not nbdkit's"
is_gone new.img new.img.sock

echo precious >old.img
refused 'no_such_word' old.img no_such_word=1
[ "$(cat old.img)" = precious ] || fail "the old image changed"
is_gone old.img.sock

# Nor is it ours any more if someone has put another file in its place.
mkdir bin
cat >bin/nbdkit <<END
#!/bin/sh
echo precious >"$dir/other"
mv "$dir/other" "$dir/replaced.img"
echo "no such luck" >&2
exit 5
END
chmod +x bin/nbdkit
PATH=$dir/bin:$PATH refused 'no such luck' replaced.img --create 1M
[ "$serve_status" -eq 5 ] || fail "status $serve_status is not nbdkit's"
[ "$(cat replaced.img)" = precious ] || fail "another file was removed"
