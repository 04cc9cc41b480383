#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# server/mutant.h leaves no trace in the plugin that is installed; in the one
# that only the tests have, each bug must be found by the same search.

set -euo pipefail

# words PLUGIN: the names of bugs, and of the switch, in its code and data.
words() {
    local copy
    copy=$(mktemp)
    strip --strip-debug -o "$copy" "$1"
    {
        strings -a "$copy"
        nm "$copy" | awk '{ print $NF }'
    } | grep -E "^($names)$|(^|_)mutant(_|$)|UBD_MUTANT" | sort -u || true
    rm -f "$copy"
}

# Every bug that the sources can have.
mapfile -t bugs < <(grep -rhoE 'UBD_MUTANT\([a-z_]+\)' "$UBD_SRC/server" \
    --include='*.c' | sed -E 's/.*\((.*)\)/\1/' | sort -u)
names=$(IFS='|' && echo "${bugs[*]}")
[ ${#bugs[@]} -ge 8 ] || {
    echo "found only ${#bugs[@]} bugs in server/*.c: ${bugs[*]}"
    exit 1
}

mutant=$(words "$UBD_MUTANT_PLUGIN")
for bug in "${bugs[@]}" ubd_mutant_is; do
    grep -qx "$bug" <<<"$mutant" || {
        echo "the search does not find $bug where it is"
        exit 1
    }
done

shipped=$(words "$UBD_PLUGIN")
[ -z "$shipped" ] || {
    echo "the plugin that is installed has: ${shipped//$'\n'/ }"
    exit 1
}
