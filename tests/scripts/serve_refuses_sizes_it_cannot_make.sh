#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"

for size in '' 0 0G -1 +1 1X 1.5G G '1 G' 1GiB 1GB 0x10 8E 9223372036854775808 \
    99999999999999999999999; do
    refused '--create .*expected a size like' disk.img --create "$size"
    is_gone disk.img disk.img.sock
done

# A size that is one, but not for this file system: no torso is left.
if truncate -s 7E probe 2>/dev/null; then
    rm probe
else
    refused 'cannot make .* long' disk.img --create 7E
    is_gone disk.img disk.img.sock
fi
