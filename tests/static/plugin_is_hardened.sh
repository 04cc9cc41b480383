#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# Guards the flags that make a mistake harder to exploit, in the plugin as it
# is shipped: stack protector, fortified libc calls, full RELRO, no executable
# stack, no text relocations, nothing writable and executable.

set -euo pipefail
so=$UBD_PLUGIN

need() {
    if ! grep -qE "$2" <<<"$1"; then
        echo "FAIL: $3"
        exit 1
    fi
}
never() {
    if grep -qE "$2" <<<"$1"; then
        echo "FAIL: $3"
        exit 1
    fi
}

dynamic=$(readelf --wide --dynamic "$so")
segments=$(readelf --wide --segments "$so")
symbols=$(readelf --wide --dyn-syms "$so")

need "$symbols" '__stack_chk_fail' 'no stack protector'
need "$symbols" '__[a-z_]+_chk(@|$)' 'no fortified call'
need "$segments" 'GNU_RELRO' 'no RELRO'
need "$dynamic" 'BIND_NOW|FLAGS_1.*NOW' 'RELRO is not full: no BIND_NOW'
need "$segments" 'GNU_STACK.* RW +0x' 'the stack is executable'
never "$segments" 'LOAD.* RWE ' 'a segment is writable and executable'
never "$dynamic" 'TEXTREL' 'text relocations'
never "$dynamic" 'RPATH|RUNPATH' 'a path of the build machine'
echo "hardened"
