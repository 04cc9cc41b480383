#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the way from a rule in server/durability.h to the line of the model
# that proves it: each names a label, and the label is there.

set -euo pipefail
cd "$UBD_SRC"
model=tests/model/durability.pml

# "RULE LABEL" for each rule: the label named before the next rule begins.
pairs=$(awk '
    match($0, /^ \* \(D[0-9]+\)/) { rule = substr($0, 5, RLENGTH - 5); n++ }
    /^ \*\// { exit }
    match($0, /tests\/model\/durability\.pml: D[0-9]+/) {
        label = substr($0, RSTART, RLENGTH)
        sub(/.* /, "", label)
        print rule, label
    }
    END { print "rules", n }
' server/durability.h)
rules=$(sed -n 's/^rules //p' <<<"$pairs")
if [ "${rules:-0}" -lt 8 ]; then
    echo "FAIL: only ${rules:-no} rules found"
    exit 1
fi
for ((i = 1; i <= rules; i++)); do
    if ! grep -qxF "D$i D$i" <<<"$pairs"; then
        echo "FAIL: rule D$i names no line of $model"
        exit 1
    fi
    if ! grep -qE "/\* D$i\b" "$model"; then
        echo "FAIL: $model has no line labelled D$i"
        exit 1
    fi
done
echo "$rules rules, each with its line"
