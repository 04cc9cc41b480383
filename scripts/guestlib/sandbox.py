# SPDX-License-Identifier: BSD-3-Clause
"""Namespaces in which everything runs and with which everything ends.

The process that scripts/guest is stays outside and only waits.  Its child is
the first process of a process namespace: when that one ends, for whatever
reason, the kernel kills all the others; and the kernel kills it when its
parent ends, also by SIGKILL.  Mounts, the tap and the sockets' folder (a
tmpfs) live in namespaces of theirs, and vanish with the last process.
"""

import ctypes
import os
import signal
import sys
import termios

CLONE_NEWNS, CLONE_NEWUSER = 0x00020000, 0x10000000
CLONE_NEWPID, CLONE_NEWNET = 0x20000000, 0x40000000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 1 << 18
PR_SET_PDEATHSIG = 1
GRACE = 30  # Seconds that ending may take before the kernel is asked to.
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)

_libc = ctypes.CDLL(None, use_errno=True)


class Refused(Exception):
    """This host does not allow it; the message says what and why."""


def _call(name, *args):
    if getattr(_libc, name)(*args) != 0:
        e = ctypes.get_errno()
        raise OSError(e, os.strerror(e))


def mount(source, target, kind, flags=0, data=None):
    _call("mount", source.encode(), os.fsencode(target), kind.encode(),
          ctypes.c_ulong(flags), data.encode() if data else None)


def _enter_user_namespace(why):
    uid, gid = os.geteuid(), os.getegid()
    try:
        _call("unshare", CLONE_NEWUSER)
        for name, text in (("setgroups", "deny"), ("uid_map", "0 %d 1" % uid),
                           ("gid_map", "0 %d 1" % gid)):
            with open("/proc/self/" + name, "w", encoding="ascii") as f:
                f.write(text)
    except OSError as e:
        raise Refused("%s, and this host allows no user namespace (%s); "
                      "please run as root" % (why, e.strerror)) from None


def _unshare():
    """Children of this process are in a process namespace of their own."""
    if os.geteuid() != 0:
        _enter_user_namespace("not root")
    try:
        _call("unshare", CLONE_NEWPID)
    except OSError as e:
        if os.geteuid() != 0:
            raise Refused("no process namespace: " + e.strerror) from None
        _enter_user_namespace("no process namespace (%s)" % e.strerror)
        _call("unshare", CLONE_NEWPID)


def _first_process(body, needs_net, parent_lives):
    """The child: never returns."""
    status = 125
    try:
        _call("prctl", PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
        # The parent may have ended before; then its end of the pipe is gone.
        os.set_blocking(parent_lives, False)
        try:
            if os.read(parent_lives, 1) == b"":
                os._exit(status)
        except BlockingIOError:
            pass
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.setsid()
        try:
            _call("unshare", CLONE_NEWNS | (CLONE_NEWNET if needs_net else 0))
            mount("none", "/", "none", MS_REC | MS_PRIVATE)
        except OSError as e:
            print("scripts/guest: no namespace of its own: " + e.strerror,
                  file=sys.stderr)
            os._exit(status)
        try:
            mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV)
        except OSError:
            pass  # A container's /proc is masked; the old one will do.
        status = body()
    except BaseException as e:  # pylint: disable=broad-except
        if os.environ.get("UBD_GUEST_DEBUG"):
            import traceback
            traceback.print_exc()
        print("scripts/guest: %s: %s" % (type(e).__name__, e),
              file=sys.stderr)
    finally:
        try:
            sys.stderr.flush()
        finally:
            os._exit(status)


def _wait(pid, o):
    """The status of the child; a signal or too long a time kills it."""
    caught = []

    def kill():
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def on_signal(number, _frame):
        caught.append(number)
        kill()

    for number in SIGNALS:
        signal.signal(number, on_signal)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    # No thread: a process that has left its process namespace may have none.
    signal.signal(signal.SIGALRM, lambda number, frame: kill())
    if o.timeout:
        signal.setitimer(signal.ITIMER_REAL, o.timeout + GRACE)
    # The kernel lets us have the first process of the namespace only when
    # all the others are gone.
    _, status = os.waitpid(pid, 0)
    signal.setitimer(signal.ITIMER_REAL, 0)
    if caught:
        print("scripts/guest: ended by " + signal.Signals(caught[0]).name,
              file=sys.stderr)
        return 128 + caught[0]
    if os.WIFSIGNALED(status):
        print("scripts/guest: killed after %g s" % (o.timeout + GRACE)
              if o.timeout and os.WTERMSIG(status) == signal.SIGKILL else
              "scripts/guest: ended by signal %d" % os.WTERMSIG(status),
              file=sys.stderr)
        return 124 if o.timeout else 125
    return os.WEXITSTATUS(status)


def run(body, o):
    """Run @body in there; returns the status for exit."""
    terminal = None
    if o.shell:
        terminal = termios.tcgetattr(0)
    # No signal between the fork and the handler that ends the child.
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    try:
        _unshare()
        parent_lives, keep = os.pipe()
        pid = os.fork()
        if pid == 0:
            os.close(keep)
            _first_process(body, o.attach == "nbd", parent_lives)
        os.close(parent_lives)
        return _wait(pid, o)
    finally:
        if terminal:
            termios.tcsetattr(0, termios.TCSADRAIN, terminal)
