#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause

. "$(dirname "$0")/lib.sh"

# refused PATTERN ARGUMENTS...
refused() {
    local pattern=$1
    shift
    seeds "$@"
    [ "$status" -eq 2 ] || fail "$*: exit status $status, expected 2"
    [ "$(wc -l <err)" -eq 1 ] || fail "$*: not one line: $(cat err)"
    grep -qE -- "^seeds: .*$pattern" err || fail "$*: says '$(cat err)'"
    [ ! -s out ] || fail "$*: prints on stdout"
}

touch file
refused bogus --bogus
refused "'4'.*'1', '2', '3', 'all'" 4
refused word 1 word
refused 'not allowed' --quick --full
refused 'nope.*expected one of.*nbdkit-file' --rows nope
refused 'no name given' --rows ,
refused 'above 0' --rounds 0
refused 'above 0' --scale none
refused 'at most 64' --scale 65
refused 'not a folder' --dir missing
refused 'NAME=WORDS' --server nameonly
refused 'is taken' 1 --server ours=cache=unsafe
refused 'cannot write file' --csv file
refused 'cannot write file' --html file/page
refused 'expected a new file' --markdown file
left=$(find . "$image_dir" -mindepth 1 ! -name out ! -name err ! -name file \
    ! -path ./tmp)
[ -z "$left" ] || fail "left behind: $left"
