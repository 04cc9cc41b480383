#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"

refused 'which image' # Nothing at all.
refused 'which image' -r cache=unsafe
refused 'name of the image is empty' ''
refused 'one image at a time' a.img b.img

refused "no image '.*/missing\.img'.*--create" missing.img
is_gone missing.img missing.img.sock

refused "no folder 'nowhere'" nowhere/disk.img
refused "no folder 'nowhere'" nowhere/disk.img --create 1M
is_gone nowhere

refused '--create needs a value' disk.img --create
refused '--socket needs a value' disk.img --socket
refused "no folder 'nowhere' for the socket" \
    disk.img --create 1M --socket nowhere/s
refused 'use --socket PATH' disk.img --create 1M -U other.sock
refused 'does not go with a unix socket' disk.img --create 1M -p 10809
is_gone disk.img
