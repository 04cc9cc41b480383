#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need nbdinfo

mkdir sub
while read -r size bytes; do
    start_serve "sub/$size.img" --create "$size" || fail "did not start"
    served=$(nbdinfo --size "$(printed uri)")
    stop_serve
    [ "$served" = "$bytes" ] || fail "$size: serves $served, not $bytes bytes"
    [ "$(stat -c %s "sub/$size.img")" = "$bytes" ] || fail "$size: file size"
    [ "$(stat -c %b "sub/$size.img")" -lt 64 ] || fail "$size: is not sparse"
    is_gone "sub/$size.img.sock"
done <<'END'
1G 1073741824
512M 536870912
64k 65536
1T 1099511627776
1048576 1048576
2048s 1048576
END

# The word may come first, and with an equals sign.
start_serve --create=1M first.img || fail "did not start"
stop_serve
[ "$(stat -c %s first.img)" = 1048576 ] || fail "first.img: file size"
