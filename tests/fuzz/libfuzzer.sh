#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# libfuzzer.sh NAME: builds fuzz-NAME.c with clang, libFuzzer, ASan and UBSan,
# tries the committed corpus, and then new inputs for UBD_FUZZ_SECONDS (3).
#
# A finding is printed in base64, so that it can be put into the corpus; to
# look for more: UBD_FUZZ_SECONDS=600 scripts/test 'fuzz NAME'.

set -euo pipefail

name=$1
seconds=${UBD_FUZZ_SECONDS:-3}
here=$UBD_SRC/tests/fuzz
corpus=$here/corpus/$name

case $name in
options) sources=(plugins/ubd-options.c server/policy.c) ;;
dirty-map) sources=(server/dirty-map.c) ;;
trace) sources=(plugins/ubd-trace-json.c) ;;
*) sources=() ;; # It includes what it tests.
esac

folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

if ! command -v clang >/dev/null; then
    echo "SKIP: clang is not installed"
    exit 77
fi
flags=(-g -O1 -std=gnu11 -D_GNU_SOURCE -Wall -Wextra -Werror
    "-fsanitize=fuzzer,address,undefined" -fno-sanitize-recover=all)
printf '%s\n' '#include <stddef.h>' '#include <stdint.h>' \
    'int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n);' \
    'int LLVMFuzzerTestOneInput(const uint8_t *d, size_t n)' \
    '{ (void)d; (void)n; return 0; }' >"$folder/probe.c"
if ! clang "${flags[@]}" "$folder/probe.c" -o "$folder/probe" 2>/dev/null; then
    echo "SKIP: clang has no libFuzzer runtime (Debian: libclang-rt-14-dev)"
    exit 77
fi

read -ra nbdkit <<<"$(pkg-config --cflags nbdkit)"
clang "${flags[@]}" "${nbdkit[@]}" -I "$UBD_SRC/include" -I "$UBD_SRC/server" \
    -I "$UBD_SRC/plugins" "$here/fuzz-$name.c" \
    "${sources[@]/#/$UBD_SRC/}" -lpthread -o "$folder/fuzz"

mkdir "$folder/corpus" "$folder/found"
cp "$corpus"/* "$folder/corpus/"
status=0
"$folder/fuzz" -max_total_time="$seconds" -timeout=100 -rss_limit_mb=1024 \
    -max_len=4096 -print_final_stats=1 -artifact_prefix="$folder/found/" \
    "$folder/corpus" >"$folder/log" 2>&1 || status=$?
if [ "$status" -ne 0 ]; then
    grep -vE '^#[0-9]+[[:space:]]+(NEW|REDUCE|pulse)' "$folder/log" | head -n 60
    for input in "$folder"/found/*; do
        echo "FAIL: fuzz-$name.c, with this input (base64; put it into" \
            "tests/fuzz/corpus/$name to replay it):"
        base64 "$input"
    done
    exit 1
fi
runs=$(sed -n 's/^stat::number_of_executed_units: *//p' "$folder/log")
# The corpus at least; a busy machine need not do more.
if [ "${runs:-0}" -lt "$(find "$corpus" -type f | wc -l)" ]; then
    echo "FAIL: only ${runs:-no} inputs were tried" && cat "$folder/log"
    exit 1
fi
echo "$name: $runs inputs"
