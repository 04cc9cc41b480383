# SPDX-License-Identifier: BSD-3-Clause
"""Does UML need our preload library on this processor?

Linux sets a process's extended state only as a whole, and UML 6.1 keeps at
most 2696 bytes of it (AVX-512).  Where the state is longer (AMX) the library
tests/guest/uml-xstate.c completes it.  How long it is, is asked of the kernel
in the way that UML asks: of a child that we trace.
"""

import ctypes
import os
import signal

UML_STATE = 2696
NT_X86_XSTATE = 0x202
PTRACE_TRACEME, PTRACE_GETREGSET = 0, 0x4204

_libc = ctypes.CDLL(None, use_errno=True)
_libc.ptrace.restype = ctypes.c_long


class _Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def state_size():
    """In bytes; 0 if the kernel does not say."""
    pid = os.fork()
    if pid == 0:
        _libc.ptrace(ctypes.c_long(PTRACE_TRACEME), 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(0)
    os.waitpid(pid, os.WUNTRACED)
    buffer = ctypes.create_string_buffer(1 << 17)
    vector = _Vector(ctypes.addressof(buffer), len(buffer))
    result = _libc.ptrace(ctypes.c_long(PTRACE_GETREGSET), pid,
                          ctypes.c_void_p(NT_X86_XSTATE),
                          ctypes.byref(vector))
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return vector.len if result == 0 else 0


def is_needed():
    return state_size() > UML_STATE


def library(o):
    return os.path.join(o.build, "tests/guest/uml-xstate.so")
