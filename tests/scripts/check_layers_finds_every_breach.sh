#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The checker is run on a copy of the sources, with an archive of small objects
# in place of the engine's, and then on copies that break one rule each.

. "$(dirname "$0")/lib.sh"
need gcc nm perl

tree=$dir/tree

# Compile TEXT as object NAME.c.o into the archive.
object() {
    printf '%s\n' "$2" |
        gcc -w -x c -c -o "$tree/build/server/$1.c.o" -
    ar rcs "$tree/build/server/libengine.a" "$tree/build/server/$1.c.o"
}

fresh_tree() {
    rm -rf "$tree"
    cp -r "$dir/pristine" "$tree"
}

mkdir -p "$tree/build/server"
cp -r "$src/server" "$src/plugins" "$src/include" "$tree"
for module in disk durability policy dirty-map stats; do
    object $module 'int strcmp(); int f(void) { return strcmp(); }'
done
object io-uring \
    'int io_uring_submit(); int f(void) { return io_uring_submit(); }'
object io-syscalls 'int pwrite(); int f(void) { return pwrite(); }'
mv "$tree" "$dir/pristine"

check() {
    "$src/scripts/check-layers.sh" "$tree" "$tree/build" >report 2>&1
}

fresh_tree
check || fail "an unchanged copy is refused: $(cat report)"

# A run of the checker costs a second, so the breaches of one tree are as many
# as can be told apart: each of these lines of $dir/expected is "PATTERN<tab>TEXT".
: >"$dir/expected"

# expect PATTERN [TEXT...]: the tree as it is now must be refused for that
# reason, and each TEXT be in the report of it.
expect() {
    local text pattern=$1
    shift
    [ $# -gt 0 ] || set -- ''
    for text in "$@"; do
        printf '%s\t%s\n' "$pattern" "$text" >>"$dir/expected"
    done
}

# Run the checker, look for what is expected, and begin with a fresh tree.
all_found() {
    local pattern text
    if check; then
        fail "not found: $(cat "$dir/expected")"
    fi
    while IFS=$'\t' read -r pattern text; do
        awk -v text="$pattern" \
            '/^(holds|BROKEN):/ { on = /^BROKEN/ && index($0, text) } on' \
            report >reason
        [ -s reason ] || fail "expected '$pattern' in: $(cat report)"
        grep -qF -- "$text" reason ||
            fail "'$text' is not in the report: $(cat reason)"
    done <"$dir/expected"
    : >"$dir/expected"
    fresh_tree
}

# breaks PATTERN [TEXT...]: this alone.
breaks() {
    expect "$@"
    all_found
}

# lines FILE REASON LINE...: each of these lines more in a file is refused.
lines() {
    local file=$tree/$1 reason=$2
    shift 2
    printf '%s\n' "$@" >>"$file"
    expect "$reason" "$@"
}

glue='plugins/ includes only'
lines plugins/ubd-plugin.c "$glue" '#include "disk.h"' \
    '#include "../server/disk.h"' '#include <durability.h>' \
    '# include <server/durability.h>' '#include <liburing.h>' '#include HEADER'
: >"$tree/plugins/own.h"
lines plugins/own.h "$glue" '#include "policy.h"'

engine='server/ includes only'
lines server/disk.c "$engine" '#include <nbdkit-plugin.h>' \
    '#include "../plugins/ubd-options.h"' '#include <check.h>'
lines server/disk.h "$engine" '#include "ubd-options.h"'

lines server/disk.c 'server/ does not know the words' '/* As nbdkit has it. */' \
    'int x = NBDKIT_FLAG_FUA;' 'struct handle;'
lines include/ubd.h 'include/ does not know the words' 'int ubd_nbdkit(void);'

lines server/disk.c 'liburing.h only in' '#include <liburing.h>'
lines server/io.h 'liburing.h only in' '#include "liburing.h"'

modes='cache modes are named only'
lines server/disk.c "$modes" 'const char *m = "barrier";'
lines plugins/ubd-plugin.c "$modes" 'const char *m = "osync";' \
    'const char *n = "unsafe";'

calls=()
for call in pread pwrite preadv2 pwritev2 fdatasync sync_file_range fallocate \
    posix_fadvise readahead pwrite64 syscall fsync; do
    calls+=("int x(void) { return $call(1); }")
done
lines server/disk.c 'system calls on the data' "${calls[@]}" \
    'int y(void) { return ioctl(1, BLKDISCARD, 0); }' \
    'int z(void) { return ioctl(1, BLKZEROOUT, 0); }'
lines plugins/ubd-plugin.c 'system calls on the data' \
    'int x(void) { return pwrite (1); }'
# The trace's own file may be begun anew, and no more.
lines plugins/ubd-trace.c 'system calls on the data' \
    'int x(void) { return ftruncate(fd, 0); }' \
    'int y(void) { return pwrite(trace.fd, "", 1, 0); }'
lines plugins/ubd-plugin.c 'system calls on the data' \
    'int x(void) { return ftruncate(trace.fd, 0); }'
all_found

# What is no breach.
printf '%s\n' '/* After fdatasync(fd), "barrier". */' '// pread(fd)' \
    'void y(void) { ops->pwrite(1); }' >>"$tree/server/disk.c"
check || fail "a harmless line is refused: $(cat report)"
fresh_tree

needs=()
for call in open read write pread pwrite fsync fdatasync fallocate open64 \
    pwritev64v2 __read_chk io_uring_submit; do
    needs+=("durability.c.o: $call")
done
object durability "$(printf 'void %s();\n' "${needs[@]##* }")
    void f(void) { $(printf '%s(); ' "${needs[@]##* }") }"
expect 'server/durability.c does no I/O' "${needs[@]}"

for module in policy dirty-map stats; do
    object $module 'int open(); int f(void) { return open(); }'
    expect "server/$module.c does no I/O"
done
object disk 'int fdatasync(), nbdkit_error(), printf();
    void *f(void) { return nbdkit_error() + printf("") ? fdatasync : 0; }'
expect 'objects outside server/io-*.c need no data system call' fdatasync
expect 'the engine needs no nbdkit symbol' nbdkit_error
expect 'the engine never prints' printf
all_found

# Nothing to check is not a success.
missing='there is something to check'
rm "$tree/build/server/libengine.a"
breaks "$missing: the engine's archive"
ar d "$tree/build/server/libengine.a" durability.c.o
breaks "$missing: durability.c.o"
echo 'not an archive' >"$tree/build/server/libengine.a"
breaks 'nm can read the archive'
rm "$tree"/plugins/*
breaks "$missing: plugins"
rm "$tree"/server/*.c
breaks "$missing: data system calls"
rm "$tree"/include/*
breaks "$missing: include"
sed -i 's/"osync"/"o_sync"/' "$tree/server/policy.c"
breaks "$missing: "'"osync"'
