#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need nbdinfo qemu-img qemu-io fio

# Names that a shell, a URI or qemu's option parser could trip over.
for name in disk.img "it's 100%, or a&b.img"; do
    start_serve "$name" --create 8M || fail "did not start"
    uri=$(printed uri)
    [ "$(nbdinfo --size "$uri")" = 8388608 ] || fail "nbdinfo $uri"

    drive=$(printed qemu | sed -nE "s/.* -drive '(.*),format=raw,.*/\1/p")
    qemu-img info "${drive#file=}" | grep -q '8 MiB' || fail "qemu: $drive"
    qemu-io -f raw -c 'write -P 7 0 64k' "${drive#file=}" >qemu.log ||
        fail "qemu-io: $(cat qemu.log)"

    line=$(printed fio)
    eval "$line --size=1M --output=fio.log" || fail "fio: $(cat fio.log)"
    grep -q 'err= 0' fio.log || fail "fio: $(cat fio.log)"

    line=$(printed nbd-client)
    eval "set -- $line"
    [ "$2 $4" = "-unix /dev/nbd0" ] || fail "nbd-client: $line"
    [ -S "$3" ] || fail "nbd-client: $3 is no socket"
    stop_serve

    printf '\7\7\7\7' | cmp -n 4 - "$name" || fail "the write is not there"
done
