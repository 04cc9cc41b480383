# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# For the tests of scripts/seeds: what those of scripts/bench have, too.
# Sourced.

# shellcheck source=../scripts-bench/lib.sh
. "$(dirname "${BASH_SOURCE[0]}")/../scripts-bench/lib.sh"
plugin=${UBD_BUILD:-$src/build}/plugins/nbdkit-ubd-plugin.so

# Run scripts/seeds; sets $status, and what it says is in out and err.
seeds() {
    status=0
    "$src/scripts/seeds" "$@" >out 2>err || status=$?
}

# The same with sizes as small as they can be, and one round.
seeds_quickly() {
    seeds "$@" --dir "$image_dir" --plugin "$plugin" --scale 64 --rounds 1
    ! grep 'skipped: .* not installed' out || exit 77
}
