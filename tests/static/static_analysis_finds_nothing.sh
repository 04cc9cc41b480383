#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the engine and the glue with clang-tidy (.clang-tidy) and cppcheck:
# not one finding.

set -euo pipefail
cd "$UBD_SRC"
for tool in clang-tidy cppcheck; do
    if ! command -v "$tool" >/dev/null; then
        echo "SKIP: $tool is not installed"
        exit 77
    fi
done

files=(server/*.c plugins/*.c)
[ "${#files[@]}" -gt 15 ] || { echo "FAIL: only ${files[*]}" && exit 1; }

cppcheck --quiet --enable=warning,performance,portability --std=c11 \
    --inline-suppr --error-exitcode=1 -D_GNU_SOURCE -I include -I server \
    "${files[@]}"

# A tool that understands nothing finds nothing.
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cp .clang-tidy "$folder/"
printf '%s\n' 'int f(int a); int f(int a) { return sizeof(sizeof(a)); }' \
    >"$folder/bad.c"
if clang-tidy --quiet "$folder/bad.c" -- >"$folder/log" 2>&1; then
    echo "FAIL: clang-tidy finds nothing wrong with sizeof(sizeof(a)):"
    cat "$folder/log"
    exit 1
fi

# It counts what it has suppressed on stderr; show that only if it fails.
printf '%s\0' "${files[@]}" |
    xargs -0 -n 6 -P 2 clang-tidy --quiet -p "$UBD_BUILD" \
        >"$folder/log" 2>&1 || { cat "$folder/log" && exit 1; }
echo "${#files[@]} files, nothing found"
