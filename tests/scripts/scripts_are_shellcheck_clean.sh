#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"
need shellcheck

scripts=("$src/.ci/run")
while IFS= read -r -d '' file; do
    read -r first <"$file" || true
    case $first in
    '#!/bin/bash' | '#!/bin/sh' | '# shellcheck shell='*) scripts+=("$file") ;;
    esac
done < <(find "$src/scripts" "$src/tests" -type f -print0)

[ ${#scripts[@]} -gt 10 ] || fail "found only ${scripts[*]}"
shellcheck -x -P SCRIPTDIR "${scripts[@]}"
