/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A preload library with which UML 6.1 starts on processors whose extended
 * state is larger than its buffer (AMX: 11008 bytes).  Linux takes
 * NT_X86_XSTATE with PTRACE_SETREGSET only in its full length, and UML gives
 * the length of its buffer.  So what UML sets is laid over the start of the
 * state that the process has, and the whole is set.  Where the kernel takes
 * UML's buffer, and for every other request, this only passes on.
 *
 * UML calls ptrace from one thread, so one static buffer will do.
 */
#include <elf.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static long
raw_ptrace(long request, pid_t pid, void *addr, void *data)
{
    return syscall(SYS_ptrace, request, pid, addr, data);
}

/* Some processor's whole state will be larger one day; GETREGSET then fills
 * the buffer, and the caller gets the kernel's refusal as without us.
 */
static char state[64 * 1024] __attribute__((aligned(64)));

static long
set_whole_state(pid_t pid, const struct iovec *given)
{
    struct iovec whole = {.iov_base = state, .iov_len = sizeof state};

    if (raw_ptrace(PTRACE_GETREGSET, pid, (void *)NT_X86_XSTATE, &whole) < 0)
        return -1;
    if (given->iov_len >= whole.iov_len) {
        errno = EFAULT; /* What the kernel said; length is not the reason. */
        return -1;
    }
    memcpy(state, given->iov_base, given->iov_len);
    return raw_ptrace(PTRACE_SETREGSET, pid, (void *)NT_X86_XSTATE, &whole);
}

static long
peek(long request, pid_t pid, void *addr)
{
    /* The system call stores the word; glibc's function returns it, and only
     * errno tells -1 from a failure.
     */
    long word = -1;

    errno = 0;
    if (raw_ptrace(request, pid, addr, &word) < 0)
        return -1;
    return word;
}

__attribute__((visibility("default"))) long
ptrace(enum __ptrace_request request, ...)
{
    va_list args;
    pid_t pid;
    void *addr, *data;
    long r;

    va_start(args, request);
    pid = va_arg(args, pid_t);
    addr = va_arg(args, void *);
    data = va_arg(args, void *);
    va_end(args);

    switch (request) {
    case PTRACE_PEEKTEXT:
    case PTRACE_PEEKDATA:
    case PTRACE_PEEKUSER:
        return peek(request, pid, addr);
    case PTRACE_SETREGSET:
        r = raw_ptrace(request, pid, addr, data);
        if (r < 0 && (errno == EFAULT || errno == EINVAL) &&
            (unsigned long)addr == NT_X86_XSTATE)
            r = set_whole_state(pid, data);
        return r;
    default:
        return raw_ptrace(request, pid, addr, data);
    }
}
