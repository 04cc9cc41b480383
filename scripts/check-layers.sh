#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Fail if a file reaches across a layer.  Checks the sources (with comments
# taken out where words in a comment are harmless) and the undefined symbols
# of the engine's objects, so that a macro or a pointer cannot hide a call.
# Finding nothing to check is a failure too.

set -euo pipefail
export LC_ALL=C

usage='Usage: scripts/check-layers.sh [SOURCE BUILD]'
case ${1-} in
-h | --help)
    echo "$usage"
    exit 0
    ;;
esac
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
source=${1:-${UBD_SRC:-$root}}
build=${2:-${UBD_BUILD:-$source/build}}
build=$(cd "$build" && pwd)
cd "$source"

failures=0
rules=0

# rule DESCRIPTION OFFENDERS: one line of the result; OFFENDERS is empty if
# the rule holds.
rule() {
    rules=$((rules + 1))
    if [ -n "$2" ]; then
        failures=$((failures + 1))
        printf 'BROKEN: %s\n' "$1"
        printf '    %s\n' "${2//$'\n'/$'\n'    }"
    else
        printf 'holds:  %s\n' "$1"
    fi
}

# must_match DESCRIPTION FOUND: a search that finds nothing is a broken check.
must_match() {
    if [ -z "$2" ]; then
        rule "there is something to check: $1" "(nothing found)"
    fi
}

# ---- The sources ----

shopt -s nullglob
engine=(server/*.c server/*.h)
glue=(plugins/*.c plugins/*.h)
public=(include/*.h)
must_match 'server/*.[ch]' "${engine[*]}"
must_match 'plugins/*.[ch]' "${glue[*]}"
must_match 'include/*.h' "${public[*]}"
for file in server/{disk,policy,durability,stats,io-uring,io-syscalls}.c \
    include/ubd.h; do
    [ -f "$file" ] || rule "$file exists" "(missing)"
done

# "file:line:text" of the given files without their comments.
code_of() {
    [ $# -gt 0 ] || return 0
    perl -0777 -ne '
        s{("(?:\\.|[^"\\\n])*"|\x27(?:\\.|[^\x27\\\n])*\x27)|/\*.*?\*/|//[^\n]*}
         {defined $1 ? $1 : "\n" x ($& =~ tr/\n//)}gse;
        my $line = 0;
        print "$ARGV:", ++$line, ":$_\n" for split /\n/;
    ' "$@"
}
code=$(code_of "${public[@]}" "${engine[@]}" "${glue[@]}")

# Lines of $code in files that match $1 and contain the Perl pattern $2.
lines() {
    grep -P "^(?:$1):[0-9]+:.*?(?:$2)" <<<"$code" || true
}
# The same for files that do not match.
lines_elsewhere() {
    grep -vP "^(?:$1):[0-9]+:" <<<"$code" |
        grep -P "^[^:]*:[0-9]+:.*?(?:$2)" || true
}

# Includes that are neither from the system nor allowed by the callback $2.
bad_includes() {
    local files=$1 allowed=$2 line name
    while IFS= read -r line; do
        [ -n "$line" ] || continue
        name=${line#*#*include}
        "$allowed" "${name//[[:space:]]/}" || printf '%s\n' "$line"
    done <<<"$(lines "$files" '#\s*include\b')"
}

glue_may_include() {
    local name
    case $1 in
    '"ubd.h"' | '<nbdkit-plugin.h>' | '<nbdkit-common.h>' | \
        '<nbdkit-version.h>')
        return 0
        ;;
    \"*/*) return 1 ;;
    \"*\"*)
        name=${1#\"}
        [ -f "plugins/${name%%\"*}" ]
        ;;
    '<liburing'*) return 1 ;;
    \<*\>*)
        # A header of ours in angle brackets is still a header of ours.
        name=${1#<}
        name=${name%%>*}
        [ ! -e "server/$name" ] && [ ! -e "$name" ]
        ;;
    *) return 1 ;;
    esac
}

engine_may_include() {
    local name
    case $1 in
    '"ubd.h"') return 0 ;;
    \"*/*) return 1 ;;
    \"*\"*)
        name=${1#\"}
        [ -f "server/${name%%\"*}" ]
        ;;
    '<nbdkit'* | '<check.h>' | '<libnbd.h>') return 1 ;;
    \<*\>*)
        name=${1#<}
        [ ! -e "plugins/${name%%>*}" ]
        ;;
    *) return 1 ;;
    esac
}

must_match 'includes in plugins/' "$(lines 'plugins/[^:]*' '#\s*include')"
must_match 'includes in server/' "$(lines 'server/[^:]*' '#\s*include')"
must_match 'plugins/ uses ubd.h' \
    "$(lines 'plugins/[^:]*' '#\s*include\s*"ubd\.h"')"
rule 'plugins/ includes only ubd.h, nbdkit, its own and system headers' \
    "$(bad_includes 'plugins/[^:]*' glue_may_include)"
rule 'server/ includes only ubd.h, its own and system headers' \
    "$(bad_includes 'server/[^:]*' engine_may_include)"

# Comments count here: the words shape how people think about the engine.
front_words='nbdkit|(^|[^a-z_])handle([^a-z_]|$)'
rule 'server/ does not know the words of nbdkit, not even in comments' \
    "$(grep -HniE "$front_words" "${engine[@]}" /dev/null || true)"
rule 'include/ does not know the words of nbdkit, except in comments' \
    "$(lines 'include/[^:]*' "(?i)($front_words)")"

uring='#\s*include\s*[<"]liburing'
must_match 'server/io-uring.c includes liburing.h' \
    "$(lines 'server/io-uring\.c' "$uring")"
rule 'liburing.h only in server/io-uring.c' \
    "$(lines_elsewhere 'server/io-uring\.c' "$uring")"

# The default one has its name in the public header.
for mode in barrier osync unsafe; do
    must_match "\"$mode\" in server/policy.c" \
        "$(lines 'server/policy\.c' "\"$mode\"")"
done
rule 'cache modes are named only in server/policy.c' \
    "$(lines_elsewhere '(?:server/policy\.c|include/ubd\.h)' \
        '"(?:barrier|osync|unsafe)"')"

# Also under their 64-bit names (preadv64v2).  The rest of ioctl only asks.
data_calls='(pread|pwrite|preadv|pwritev|fdatasync|fsync|syncfs'
data_calls+='|sync_file_range|fallocate|posix_fallocate|posix_fadvise'
data_calls+='|readahead|copy_file_range|ftruncate|truncate)(2|64|64v2)?'
must_match 'data system calls in server/io-*.c' \
    "$(lines 'server/io-[^:]*\.c' "\\b$data_calls\\s*\\(")"
# Except that a trace, which is no disk, is begun anew.
rule 'system calls on the data of a file only in server/io-*.c' \
    "$(lines_elsewhere 'server/io-[^:]*\.c' \
        "(?<![\\w>.])($data_calls|syscall)\\s*\\(|\\bBLK(DISCARD|SECDISCARD|ZEROOUT|FLSBUF)\\b" |
        grep -vE '^plugins/ubd-trace\.c:[0-9]+:.*\bftruncate\(trace\.fd, 0\)' || true)"

# ---- The objects ----

archives=("$build"/server/*.a)
must_match "the engine's archive in $build/server" "${archives[*]}"

# "object: symbol" of what the engine's objects need from elsewhere.
symbols=
members=
if [ ${#archives[@]} -gt 0 ]; then
    symbols=$(nm -A -u "${archives[@]}" |
        sed -nE 's/^.*[:/]([^:/]*):[[:space:]]+[UwWv] /\1: /p') ||
        rule 'nm can read the archive' '(it cannot)'
    members=$(for archive in "${archives[@]}"; do ar t "$archive"; done)
fi
must_match "the engine's undefined symbols" "$symbols"

# Undefined symbols of the objects that match $1, of those that match $2.
needs() {
    grep -E "^($1): ($2)(@.*)?$" <<<"$symbols" || true
}

rule 'the engine needs no nbdkit symbol' "$(needs '.*' 'nbdkit_.*')"
rule 'the engine never prints' "$(needs '.*' \
    'stdout|stderr|(__)?v?printf(_chk)?|puts|putchar|perror|(__)?v?syslog(_chk)?|v?(err|warn)x?')"

# Also in the names that _FORTIFY_SOURCE gives them (__pread_chk, __open_2).
data_symbols="(__)?$data_calls(_chk)?|syscall|(__)?io_uring_.*"
io_symbols="$data_symbols|(__)?(open|openat|creat|close|read|write|readv|writev"
io_symbols+='|lseek|ioctl)(64)?(_2|_chk)?'
pure=(dirty-map durability policy stats)
for module in "${pure[@]}"; do
    must_match "$module.c.o in the archive" \
        "$(grep -E "(^|/)$module\.c\.o$" <<<"$members" || true)"
    rule "server/$module.c does no I/O" "$(needs "$module\.c\.o" "$io_symbols")"
done

# What the search in the sources could miss: macros, pointers.
must_match 'data system calls in the io-*.c objects' \
    "$(needs 'io-.*\.c\.o' "$data_symbols")"
others=$(grep -vE '^io-[^:]*\.c\.o: ' <<<"$symbols" || true)
rule 'objects outside server/io-*.c need no data system call' \
    "$(grep -E ": ($data_symbols)(@.*)?$" <<<"$others" || true)"

printf '%d rules, %d broken\n' "$rules" "$failures"
[ "$failures" -eq 0 ]
