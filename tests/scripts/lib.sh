# shellcheck shell=bash
# SPDX-License-Identifier: BSD-3-Clause
#
# For the tests of scripts/: a served image, beside what ../lib.sh gives.

# shellcheck source=../lib.sh
source "$(dirname "${BASH_SOURCE[0]}")/../lib.sh"

plugin=${UBD_PLUGIN:-$src/plugin.so}
export UBD_PLUGIN=$plugin
serve_pid=

# shellcheck disable=SC2317 # It is called by the trap.
before_leaving() {
    [ -z "$serve_pid" ] || stop_serve
}

# Run scripts/serve until it says that it is ready; 1 if it ends before.
# Its words are in the files out and err.
start_serve() {
    local line
    # A shell's background jobs ignore SIGINT, and what nohup(1) starts SIGHUP,
    # which bash cannot undo.
    exec {serve_fd}< <(
        exec perl -e '@SIG{"INT", "HUP"} = ("DEFAULT") x 2; exec @ARGV or die' \
            "$src/scripts/serve" "$@" 2>err
    )
    serve_pid=$!
    : >out
    while IFS= read -r -u "$serve_fd" line; do
        printf '%s\n' "$line" >>out
        case $line in Ctrl-C*) return 0 ;; esac
    done
    wait_serve
    return 1
}

# Sets serve_status.
wait_serve() {
    serve_status=0
    wait "$serve_pid" || serve_status=$?
    serve_pid=
    exec {serve_fd}<&-
}

# Send SIGNAL and wait for the end.
signal_serve() {
    kill -"$1" "$serve_pid" 2>/dev/null || true
    wait_serve
}

stop_serve() {
    signal_serve TERM
}

# The text after a label in what serve printed.
printed() {
    sed -nE "s/^  $1 +//p" out
}

# refused PATTERN ARGUMENTS...: serve must fail, say PATTERN on stderr, and
# print nothing that looks like success.
refused() {
    local pattern=$1
    shift
    if start_serve "$@"; then
        fail "serve $* was not refused"
    fi
    [ "$serve_status" -ne 0 ] || fail "serve $* exits 0"
    [ ! -s out ] || fail "serve $* printed: $(cat out)"
    grep -qE -- "$pattern" err ||
        fail "serve $* says '$(cat err)', expected '$pattern'"
}

# is_gone PATH...
is_gone() {
    local path
    for path in "$@"; do
        if [ -e "$path" ] || [ -L "$path" ]; then
            fail "$path is there"
        fi
    done
}
