#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# scripts/prove names what was wrong and what was expected, and proves nothing.

set -euo pipefail

# refused WORDS EXPECTED: a command line, and what the message must hold.
refused() {
    local status=0 out
    # shellcheck disable=SC2086 # Several words.
    out=$("$UBD_SRC/scripts/prove" $1 2>&1) || status=$?
    if [ "$status" -ne 2 ] || [ "$(wc -l <<<"$out")" -ne 1 ] ||
        ! grep -qF -- "$2" <<<"$out"; then
        printf '%s: exit %s, and said:\n%s\n' "$1" "$status" "$out"
        exit 1
    fi
}

refused '--cuts 0' '--cuts 0: expected 1 or more'
refused '--cuts many' "'many'"
refused '--seed 0' '--seed 0: expected 1 or more'
refused '--guests 0' '--guests 0: expected 1 or more'
refused '--stack floppy' '--stack floppy: expected all or one of ext4, xfs'
refused '--guests 1 --stack block' '--stack block: expected all or one of ext4'
refused '--guests 1 --mode unsafe' '--mode unsafe: expected all or one of'
refused '--mode fast' "'fast'"
refused '--mutant none_such' "'none_such'"
refused 'ten' 'ten'
