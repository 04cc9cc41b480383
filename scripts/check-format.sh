#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Fail if a C file is not as .clang-format wants it; --fix rewrites instead.

set -euo pipefail
cd "${UBD_SRC:-$(dirname "${BASH_SOURCE[0]}")/..}"

check=(--dry-run --Werror)
case ${1-} in
'') ;;
--fix) check=(-i) ;;
*)
    echo "Usage: scripts/check-format.sh [--fix]" >&2
    exit 2
    ;;
esac

# Other versions lay out some lines differently; 14 is what we agreed on.
tool=$(command -v clang-format-14 || command -v clang-format || true)
if [ -z "$tool" ]; then
    echo "check-format: skipped, clang-format is not installed"
    exit 77
fi

mapfile -d '' files < <(find include server plugins tests \
    -type f -name '*.[ch]' -print0 | sort -z)
if [ ${#files[@]} -eq 0 ]; then
    echo "check-format: found no C files, which cannot be right" >&2
    exit 1
fi

"$tool" --style=file "${check[@]}" "${files[@]}"
echo "check-format: ${#files[@]} files"
