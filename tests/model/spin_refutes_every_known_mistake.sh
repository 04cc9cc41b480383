#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the model itself: with one line made wrong in a way that real servers
# are wrong, spin must find a reply that lies.

. "$(dirname "$0")/lib.sh"

mistakes=(
    ACK      # D8: acknowledged before it counts
    CLEAR    # D2: what completed during the sync is taken for covered
    DSYNC    # D5: a FUA write without RWF_DSYNC
    EARLY    # D1: the reply before the sync
    FIRST    # D6: the first flush is taken for clean
    FORGET   # D3: the error is forgotten
    HARMLESS # D7: judged by what has completed, not by what has begun
    JOIN     # D2: joining whatever sync is running
    LANE     # D4: two calls on one open file
    ZERO     # D5: a FUA zero without a sync
)
known=$(grep -oE '\bWRONG_[A-Z]+' "$model" | sort -u)
if [ "$known" != "$(printf 'WRONG_%s\n' "${mistakes[@]}" | sort)" ]; then
    echo "FAIL: the model's mistakes and this list differ:" && echo "$known"
    exit 1
fi
for mistake in "${mistakes[@]}"; do
    # Only where no more may run is a running sync joined.
    syncs=2
    [ "$mistake" != JOIN ] || syncs=1
    report=$(run_spin "-DWRONG_$mistake" "-DSYNCS_MAX=$syncs")
    if ! grep -qE 'errors: 1$' <<<"$report" ||
        ! grep -q 'assertion violated' <<<"$report"; then
        echo "FAIL: WRONG_$mistake was not refuted:" && echo "$report"
        exit 1
    fi
    echo "refuted: WRONG_$mistake: $(grep 'assertion violated' <<<"$report")"
done
