#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the rules D1 to D8 in every interleaving of a small number of clients:
# two with two requests each and two syncs at a time, and three with one each
# and one sync at a time, where flushes queue and a leader is chosen.

. "$(dirname "$0")/lib.sh"

unreached=''
for size in '2 2 2' '3 1 1'; do
    read -r clients ops syncs <<<"$size"
    report=$(run_spin "-DNR_CLIENTS=$clients" "-DNR_OPS=$ops" \
        "-DSYNCS_MAX=$syncs")
    grep -E 'errors:|states, stored|elapsed' <<<"$report"
    for sign in 'errors: 0$' 'Full statespace search' \
        'assertion violations[[:space:]]*\+' \
        'invalid end states[[:space:]]*\+'; do
        if ! grep -qE "$sign" <<<"$report"; then
            echo "FAIL: no '$sign' with $size in:" && echo "$report"
            exit 1
        fi
    done
    for sign in 'max search depth too small' 'Search not completed' \
        'out of memory' 'hash-array'; do
        if grep -q "$sign" <<<"$report"; then
            echo "FAIL: '$sign' with $size in:" && echo "$report"
            exit 1
        fi
    done
    # Lines of the model that this size does not reach.
    here_not=$(grep -oE 'durability\.pml:[0-9]+, state [0-9]+, "[^-].*' \
        <<<"$report" | grep -oE '^[^,]*' | sort -u || true)
    if [ -z "$unreached" ]; then
        unreached=${here_not:-none}
    else
        unreached=$(comm -12 <(echo "$unreached") <(echo "$here_not"))
    fi
done
if [ -n "${unreached#none}" ]; then
    echo "FAIL: nothing ever reaches these lines, so they prove nothing:"
    echo "$unreached"
    exit 1
fi
