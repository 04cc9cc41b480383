#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# With uml-xstate.so a process's extended state can be set from a buffer that
# is shorter than the kernel's: the start is the buffer's, the rest stays.
# Without it, the kernel refuses (else there is nothing to test here).

from guesttest import *

NT_X86_XSTATE = 0x202
TRACEME, PEEKDATA, CONT, GETREGSET, SETREGSET = 0, 2, 7, 0x4204, 0x4205
SHORT = 576  # The legacy area and the header; every processor has these.


class Vector(ctypes.Structure):
    _fields_ = [("base", ctypes.c_void_p), ("len", ctypes.c_size_t)]


def ptrace(*args):
    libc.ptrace.restype = ctypes.c_long
    args = [ctypes.c_void_p(a) if isinstance(a, int) else a for a in args]
    return libc.ptrace(*args)


def regset(request, pid, buffer):
    v = Vector(ctypes.addressof(buffer), len(buffer))
    if ptrace(request, pid, NT_X86_XSTATE, ctypes.byref(v)) != 0:
        return None
    return v.len


def traced_child():
    pid = os.fork()
    if pid == 0:
        ptrace(TRACEME, 0, None, None)
        os.kill(os.getpid(), signal.SIGSTOP)
        os._exit(3)
    os.waitpid(pid, os.WUNTRACED)
    return pid


def inner():
    """In a process of its own, with the library or without: exit status 0 or
    1, the kernel refused, 2."""
    pid = traced_child()
    big = ctypes.create_string_buffer(1 << 16)
    size = regset(GETREGSET, pid, big)
    if size is None or size <= SHORT:
        skip("the kernel has no longer state")
    before = big.raw[:size]
    part = ctypes.create_string_buffer(before[:SHORT], SHORT)
    part[160] = bytes([before[160] ^ 0x55])  # A byte of xmm0.
    part[512] = bytes([before[512] | 2])     # It is in use, says the header.
    if regset(SETREGSET, pid, part) is None:
        os.kill(pid, signal.SIGKILL)
        os._exit(2)
    assert regset(GETREGSET, pid, big) == size
    assert big.raw[:512] == part.raw[:512], "the start is not what was set"
    assert big.raw[576:size] == before[576:], "the rest has changed"
    # The other requests go through, and a word of memory is returned.
    value = ctypes.c_long(-1)
    ctypes.set_errno(0)
    got = ptrace(PEEKDATA, pid, ctypes.addressof(value), None)
    # The child is our copy; there the variable is not yet made, but its
    # memory is mapped.
    assert ctypes.get_errno() == 0, got
    assert ptrace(CONT, pid, None, None) == 0
    _, status = os.waitpid(pid, 0)
    assert os.WIFEXITED(status) and os.WEXITSTATUS(status) == 3, status


def run_inner(**env):
    return subprocess.run([sys.executable, __file__, "inner"], check=False,
                          env=dict(os.environ, **env)).returncode


def test(t):
    library = os.environ["UBD_UML_XSTATE_SO"]
    status = run_inner()
    if status == SKIP:
        skip("the kernel has no longer state")
    if status == 0:
        skip("this kernel takes a short state as it is")
    assert status == 2, "without the library: %d" % status
    status = run_inner(LD_PRELOAD=library)
    assert status == 0, "with the library: %d" % status


if sys.argv[1:] == ["inner"]:
    inner()
else:
    main(test)
