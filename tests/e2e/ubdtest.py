# SPDX-License-Identifier: BSD-3-Clause
#
# The harness of the end-to-end tests: one real nbdkit per server, one private
# folder per test, and nothing left behind.
#
# A test is a function marked @test that takes a Case.  Its name is the
# sentence that would be false if it failed.  A file ends with `main()`, which
# runs its tests, prints one line each and exits with 0, 1, or 77 (everything
# was skipped).
#
# Whatever a test starts (process, loop device, file) is undone in reverse
# order when it ends: also after a failure, SIGTERM, SIGINT or the deadline.  A
# libnbd call blocks inside C, where Python runs no signal handler, so signals
# and the deadline are served by a thread (see _Watcher).

import contextlib
import ctypes
import errno
import faulthandler
import os
import random
import re
import select
import shutil
import signal
import socket
import stat
import struct
import subprocess
import sys
import tempfile
import threading
import time
import traceback

try:
    import nbd
except ImportError:
    print("SKIP: python has no nbd module (Debian: python3-libnbd)")
    sys.exit(77)

KiB = 1024
MiB = 1024 * KiB

# For a busy machine: everything that is given up after some time is given so
# many times that; scripts/test sets it, and gives meson and check the same.
TIMES = float(os.environ.get("UBD_TIMEOUT_MULTIPLIER", "1"))

# No test waits for a length of time; this is how long one waits for something
# that must happen before it says that it did not.
PATIENCE = 30 * TIMES

# Below the 60 s after which meson kills, so that a stuck test still cleans up
# and says where it is stuck.  0: no deadline (valgrind, a debugger).
DEADLINE = float(os.environ.get("UBD_DEADLINE", "55")) * TIMES

SKIPPED = 77
ENGINES = ("io_uring", "syscalls")
MODES = ("barrier", "osync", "unsafe")


class Skip(Exception):
    """The test cannot run here; the message says what is missing."""


class Failure(AssertionError):
    pass


def plugin():
    path = os.environ.get("UBD_PLUGIN")
    if not path:
        path = os.path.join(source_root(), "plugin.so")
    if not os.path.exists(path):
        raise Failure(f"no plugin at {path} (UBD_PLUGIN)")
    return os.path.abspath(path)


def source_root():
    here = os.path.dirname(os.path.abspath(__file__))
    return os.environ.get("UBD_SRC") or os.path.dirname(os.path.dirname(here))


# Assertions that say what they saw.

def check(truth, message):
    if not truth:
        raise Failure(message)


def equal(got, expected, what):
    if got != expected:
        raise Failure(f"{what}: got {got!r}, expected {expected!r}")


def same_bytes(got, expected, what):
    """Like equal() for large buffers: says where they differ, not all of it."""
    if bytes(got) == bytes(expected):
        return
    if len(got) != len(expected):
        raise Failure(f"{what}: {len(got)} bytes, expected {len(expected)}")
    wrong = [i for i in range(len(got)) if got[i] != expected[i]]
    i = wrong[0]
    raise Failure(
        f"{what}: {len(wrong)} bytes differ, from {i} to {wrong[-1]}: got "
        f"{bytes(got[i:i + 16]).hex()}, expected "
        f"{bytes(expected[i:i + 16]).hex()}")


def mentions(text, *words):
    for word in words:
        check(word.lower() in text.lower(), f"{word!r} is not in: {text!r}")


def fails_with(errors, call, *args, **kwargs):
    """Call; it must raise an nbd.Error with one of @errors (names)."""
    if isinstance(errors, str):
        errors = (errors,)
    wanted = {getattr(errno, name) for name in errors}
    try:
        call(*args, **kwargs)
    except nbd.Error as e:
        got = nbd_errno(e)
        check(got in wanted,
              f"failed with {errno.errorcode.get(got, got)}, expected "
              f"{' or '.join(errors)}: {e}")
        return
    raise Failure(f"succeeded, expected {' or '.join(errors)}")


def nbd_errno(e):
    """The number in an nbd.Error; the binding keeps the name in .errno."""
    name = e.errno
    return getattr(errno, name) if isinstance(name, str) else name


def wait_for(predicate, what, patience=PATIENCE):
    """Look again until @predicate is true; returns what it returned."""
    end = time.monotonic() + patience
    while True:
        value = predicate()
        if value:
            return value
        if time.monotonic() > end:
            raise Failure(f"waited {patience} s in vain for: {what}")
        time.sleep(0.003)


def pattern(size, seed=1):
    return random.Random(seed).randbytes(size)


def read_file(path, size=-1, offset=0):
    with open(path, "rb") as f:
        f.seek(offset)
        return f.read(size)


def is_root():
    return os.geteuid() == 0


def need_root(why):
    if not is_root():
        raise Skip(f"needs root: {why}")


def need_tool(name):
    path = shutil.which(name)
    if not path:
        raise Skip(f"{name} is not installed")
    return path


def nobody():
    """uid and gid of the unprivileged user."""
    import pwd
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise Skip("there is no user nobody") from None
    return entry.pw_uid, entry.pw_gid


# Kernel features, asked of the kernel rather than of the plugin.

_libc = ctypes.CDLL(None, use_errno=True)
SYS_IO_URING_SETUP = 425  # The same number on every architecture but alpha.


def has_io_uring():
    params = ctypes.create_string_buffer(256)
    fd = _libc.syscall(SYS_IO_URING_SETUP, 1, params)
    if fd < 0:
        return False
    os.close(fd)
    return True


def engines():
    """The values of io= that can be insisted on here."""
    if has_io_uring():
        return ENGINES
    print("  note: this kernel refuses io_uring; only io=syscalls is tested")
    return ("syscalls",)


class _SockFprog(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def refusal_of_io_uring(number):
    """A preexec_fn: io_uring_setup fails with errno @number from then on.

    What a container's seccomp profile does.  Everything is prepared here, so
    that the child between fork and exec only makes two system calls.
    """
    ld_abs, jeq, ret = 0x20, 0x15, 0x06
    code = struct.pack("HBBI", ld_abs, 0, 0, 0)  # seccomp_data.nr
    code += struct.pack("HBBI", jeq, 0, 1, SYS_IO_URING_SETUP)
    code += struct.pack("HBBI", ret, 0, 0, 0x00050000 | number)  # RET_ERRNO
    code += struct.pack("HBBI", ret, 0, 0, 0x7fff0000)  # RET_ALLOW
    program = _SockFprog(len(code) // 8, code)

    def install():
        zero = ctypes.c_ulong(0)
        one = ctypes.c_ulong(1)
        if _libc.prctl(38, one, zero, zero, zero) != 0:  # NO_NEW_PRIVS
            os._exit(99)
        if _libc.prctl(22, ctypes.c_ulong(2), ctypes.byref(program),
                       zero, zero) != 0:  # SECCOMP_MODE_FILTER
            os._exit(98)

    return install


def takes_direct(path):
    """The alignment that O_DIRECT needs on @path's file system, or None.

    Found by trying, so that it does not depend on the plugin's own opinion.
    """
    import mmap
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
    except OSError:
        return None
    try:
        page = mmap.mmap(-1, 4096)
        for align in (512, 1024, 2048, 4096):
            try:
                with memoryview(page) as view, view[:align] as part:
                    os.preadv(fd, [part], 0)
                return align
            except OSError:
                continue
        return None
    finally:
        os.close(fd)


# Metrics

class Metrics:
    """A parsed metrics file.  metrics("name", kind="write") is a number."""

    _line = re.compile(r"^([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
    _label = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"(,|$)')

    def __init__(self, text):
        self.text = text
        self.samples = []  # (name, labels, value) in the file's order
        self.types = {}
        self.helps = {}
        check(text.endswith("\n"), "metrics: the last line is cut short")
        for line in text.splitlines():
            if line.startswith("# TYPE "):
                _, _, name, kind = line.split(" ", 3)
                check(name not in self.types, f"metrics: two TYPEs: {line}")
                self.types[name] = kind
            elif line.startswith("# HELP "):
                _, _, name, words = line.split(" ", 3)
                check(name not in self.helps, f"metrics: two HELPs: {line}")
                self.helps[name] = words
            elif line and not line.startswith("#"):
                self.samples.append(self._sample(line))

    def _sample(self, line):
        match = self._line.match(line)
        check(match, f"metrics: cannot read the line {line!r}")
        name, inside, value = match.groups()
        labels = {}
        at = 0
        while inside and at < len(inside):
            label = self._label.match(inside, at)
            check(label, f"metrics: cannot read the labels of {line!r}")
            raw = label.group(2)
            labels[label.group(1)] = re.sub(
                r"\\(.)", lambda m: {"n": "\n"}.get(m[1], m[1]), raw)
            at = label.end()
        return name, labels, float(value)

    def find(self, name, **labels):
        return [s for s in self.samples if s[0] == name and
                all(s[1].get(k) == v for k, v in labels.items())]

    def __call__(self, name, **labels):
        found = self.find(name, **labels)
        check(found, f"metrics: no {name} {labels or ''}")
        total = sum(s[2] for s in found)
        return int(total) if total == int(total) else total

    # The counters that most tests look at.
    @property
    def syncs(self):
        return self("ubd_syncs_submitted_total")

    @property
    def merged(self):
        return self("ubd_flushes_merged_total")

    @property
    def clean(self):
        return self("ubd_flushes_clean_total")

    @property
    def flushes(self):
        return self("ubd_requests_total", kind="flush")


class Server:
    """One nbdkit in the foreground on a unix socket in the test's folder."""

    def __init__(self, case, process, sock, log, metrics_path):
        self.case = case
        self.process = process
        self.pid = process.pid
        self.sock = sock
        self.log_path = log
        self.metrics_path = metrics_path
        self.handles = []

    def log(self):
        return read_file(self.log_path).decode(errors="replace")

    def alive(self):
        return self.process.poll() is None

    def connect(self, extents=False, configure=None):
        h = nbd.NBD()
        if extents:
            h.add_meta_context("base:allocation")
        if configure:
            configure(h)
        h.connect_unix(self.sock)
        self.handles.append(h)
        return h

    def disconnect(self, h):
        self.handles.remove(h)
        h.shutdown()

    def disconnect_all(self):
        while self.handles:
            h = self.handles.pop()
            with contextlib.suppress(nbd.Error):
                h.shutdown()

    def wait(self):
        """Wait for the process to end by itself; returns the exit status."""
        try:
            return self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failure(f"nbdkit did not end in {PATIENCE} s") from None

    def stop(self):
        """Disconnect, ask nbdkit to end, return the metrics if there are."""
        self.disconnect_all()
        check(self.alive(), "nbdkit ended before it was asked to, status "
              f"{self.process.poll()}: {self.log()}")
        self.process.send_signal(signal.SIGTERM)
        equal(self.wait(), 0, "exit status after SIGTERM")
        return self.metrics() if self.metrics_path else None

    def kill(self):
        self.process.kill()
        self.wait()

    def metrics(self):
        return Metrics(read_file(self.metrics_path).decode())

    def metrics_when(self, predicate, what):
        """The first metrics of the running server that satisfy @predicate."""
        def look():
            if os.path.exists(self.metrics_path):
                m = self.metrics()
                return m if predicate(m) else None
            return None
        return wait_for(look, what)

    def descriptors(self):
        """What each open descriptor of the server is, by number."""
        folder = f"/proc/{self.pid}/fd"
        found = {}
        for fd in os.listdir(folder):
            with contextlib.suppress(FileNotFoundError):
                found[int(fd)] = os.readlink(f"{folder}/{fd}")
        return found

    def open_flags(self, path):
        """O_* flags of each of the server's descriptors of @path."""
        path = os.path.realpath(path)
        flags = []
        for fd, target in self.descriptors().items():
            if target == path:
                info = read_file(f"/proc/{self.pid}/fdinfo/{fd}").decode()
                flags.append(int(re.search(r"flags:\s*(\d+)", info)[1], 8))
        return flags

    def threads(self):
        """How many; without the kernel's own workers of a ring (iou-wrk-N)."""
        nr = 0
        for task in os.listdir(f"/proc/{self.pid}/task"):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                name = read_file(f"/proc/{self.pid}/task/{task}/comm")
                nr += not name.startswith(b"iou-")
        return nr


class Loop:
    """A loop device of ours, detached when the test ends."""

    def __init__(self, path):
        self.path = path
        self.name = os.path.basename(path)

    def flushes(self):
        """Flushes that the device has completed: field 16 of its stat."""
        return int(read_file(f"/sys/block/{self.name}/stat").split()[15])


class Case:
    """One running test: its folder and everything that must be undone."""

    def __init__(self, name):
        self.name = name
        self.undo = []
        self.servers = []
        self.lock = threading.RLock()
        # Not /tmp, which may be a tmpfs (no O_DIRECT, no real sync); not the
        # build folder, whose path may be too long for a socket.
        base = os.environ.get("UBD_TMPDIR") or "/var/tmp"
        self.dir = tempfile.mkdtemp(prefix="ubd-e2e-", dir=base)
        self.at_end(shutil.rmtree, self.dir, ignore_errors=True)
        os.chmod(self.dir, 0o755)  # The tests of `-u` go in as nobody.

    def at_end(self, call, *args, **kwargs):
        self.undo.append((call, args, kwargs))

    def cleanup(self):
        with self.lock:
            while self.undo:
                call, args, kwargs = self.undo.pop()
                try:
                    call(*args, **kwargs)
                except Exception as e:  # The others must be undone as well.
                    print(f"  cleanup: {e}")
            end_orphans()

    def path(self, *names):
        return os.path.join(self.dir, *names)

    def image(self, size=None, data=b"", name="disk.img"):
        """A file of @size bytes (of the data's; 1 MiB): @data, then a hole."""
        path = self.path(name)
        with open(path, "wb") as f:
            f.write(data)
            f.truncate(len(data) or MiB if size is None else size)
        return path

    def new_path(self, stem):
        n = 0
        while os.path.lexists(self.path(f"{stem}{n or ''}")):
            n += 1
        return self.path(f"{stem}{n or ''}")

    def start(self, cmd, **kwargs):
        """A process that is killed when the test ends."""
        process = subprocess.Popen(cmd, **kwargs)
        self.at_end(end_process, process)
        return process

    def run(self, cmd, status=0, **kwargs):
        """Run to the end; returns stdout and stderr as one text.

        @status: the expected exit status; None: any but 0.
        """
        kwargs.setdefault("cwd", self.dir)
        process = self.start(cmd, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             **kwargs)
        try:
            out, _ = process.communicate(timeout=PATIENCE)
        except subprocess.TimeoutExpired:
            raise Failure(f"still running after {PATIENCE} s: "
                          f"{' '.join(cmd)}") from None
        out = out.decode(errors="replace")
        if status is None:
            check(process.returncode > 0,
                  f"{' '.join(cmd)}: status {process.returncode}: {out}")
        else:
            equal(process.returncode, status, f"{' '.join(cmd)}: {out}\nstatus")
        return out

    def serve(self, *args, nbdkit=(), metrics=True, so=None, before=(),
              **kwargs):
        """Start a server and return when it accepts connections.

        @args go to the plugin, @nbdkit to nbdkit, @before stands in front of
        nbdkit (setpriv, ...), @kwargs go to Popen.
        """
        # Each server has a folder of its own, so that its metrics file, which
        # is replaced by renaming, meets nobody else's.
        folder = self.new_path("server")
        os.mkdir(folder)
        os.chmod(folder, 0o777)
        sock = os.path.join(folder, "sock")
        pidfile = os.path.join(folder, "pid")
        log = os.path.join(folder, "log")
        metrics_path = None
        args = list(args)
        if metrics:
            metrics_path = os.path.join(folder, "metrics")
            args.append("metrics=" + metrics_path)
        cmd = [*before, "nbdkit", "-f", "--exit-with-parent", "-U", sock,
               "-P", pidfile, *nbdkit, so or plugin(), *args]
        with open(log, "wb") as out:
            process = self.start(cmd, stdin=subprocess.DEVNULL, stdout=out,
                                 stderr=out, **kwargs)
        server = Server(self, process, sock, log, metrics_path)
        self.servers.append(server)
        # nbdkit writes the pid file when the socket listens.
        wait_for(lambda: os.path.exists(pidfile) or not server.alive(),
                 "nbdkit to start")
        check(os.path.exists(pidfile),
              f"{' '.join(cmd)}\ndid not start: {server.log()}")
        return server

    def refuse(self, *args, nbdkit=(), so=None, **kwargs):
        """nbdkit must end by itself with an error; returns what it said."""
        sock = self.new_path("refused")
        pidfile = sock + ".pid"
        cmd = ["nbdkit", "-f", "--exit-with-parent", "-U", sock, "-P", pidfile,
               *nbdkit, so or plugin(), *args]
        process = self.start(cmd, stdin=subprocess.DEVNULL,
                             stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                             cwd=self.dir, **kwargs)
        # Watch for its start, too: a server that should not run may run long.
        wait_for(lambda: os.path.exists(pidfile) or process.poll() is not None,
                 f"the end of {' '.join(cmd)}")
        if os.path.exists(pidfile):
            raise Failure(f"not refused, it serves: {' '.join(cmd)}")
        out = process.communicate()[0].decode(errors="replace")
        check(process.returncode > 0,
              f"{' '.join(cmd)}: status {process.returncode}: {out}")
        return out

    def own_pid(self, pid):
        """A process that is not our child (a daemon): end it at the end."""
        fd = os.pidfd_open(pid)
        self.at_end(end_pidfd, fd)
        return fd

    def ramfs(self):
        """An empty file system that can do next to nothing."""
        need_root("a mount")
        mounted = self.new_path("ramfs")
        os.mkdir(mounted)
        self.at_end(umount, mounted)
        self.run(["mount", "-t", "ramfs", "ubd-e2e", mounted])
        return mounted

    def loop(self, path, *options):
        need_root("loop devices")
        need_tool("losetup")
        made = subprocess.run(["losetup", "--find", "--show", *options, path],
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              check=False, text=True)
        if made.returncode != 0:
            raise Skip(f"no loop device: {made.stdout.strip()}")
        device = made.stdout.strip()
        self.at_end(subprocess.run, ["losetup", "--detach", device],
                    check=False)
        return Loop(device)


def end_process(process):
    if process.poll() is None:
        process.kill()
        process.wait(PATIENCE)
    for pipe in (process.stdin, process.stdout, process.stderr):
        if pipe:
            with contextlib.suppress(OSError):
                pipe.close()


def adopt_orphans():
    """A daemon whose launcher has ended becomes our child, not init's."""
    zero = ctypes.c_ulong(0)
    if _libc.prctl(36, ctypes.c_ulong(1), zero, zero, zero) != 0:
        print("  note: daemons cannot be adopted (PR_SET_CHILD_SUBREAPER)")


def end_orphans():
    """End what is still our child when everything known has ended."""
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            children = read_file(f"/proc/self/task/{task}/children")
            for pid in map(int, children.split()):
                os.kill(pid, signal.SIGKILL)
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, 0)


def umount(path):
    """No matter whether it is mounted; it may be too early for that."""
    subprocess.run(["umount", path], check=False, stderr=subprocess.DEVNULL)


def end_pidfd(fd):
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(fd, signal.SIGKILL)
    pidfd_ended(fd)
    os.close(fd)


def pidfd_ended(fd, patience=PATIENCE):
    """Wait until the process behind @fd has ended."""
    ready, _, _ = select.select([fd], [], [], patience)
    return bool(ready)


# Concurrency

def in_threads(calls):
    """Run all @calls at once, wait, and raise the first failure."""
    failures = []

    def run(call):
        try:
            call()
        except BaseException as e:
            failures.append(e)

    threads = [threading.Thread(target=run, args=(c,), daemon=True)
               for c in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


class Pipeline:
    """Asynchronous requests on one connection and what became of each."""

    def __init__(self, h):
        self.h = h
        self.results = {}  # key: 0 or errno
        self.buffers = {}  # Kept until the answer is there.
        self.sent = 0

    def _done(self, key):
        def completion(error):
            value = getattr(error, "value", error)
            self.results[key] = value
            return 1  # Retire the command.
        return completion

    def pwrite(self, key, data, offset, flags=0):
        self.buffers[key] = nbd.Buffer.from_bytearray(bytearray(data))
        self.h.aio_pwrite(self.buffers[key], offset, self._done(key), flags)
        self.sent += 1

    def pread(self, key, size, offset):
        self.buffers[key] = nbd.Buffer(size)
        self.h.aio_pread(self.buffers[key], offset, self._done(key))
        self.sent += 1

    def flush(self, key):
        self.h.aio_flush(self._done(key))
        self.sent += 1

    def zero(self, key, count, offset, flags=0):
        self.h.aio_zero(count, offset, self._done(key), flags)
        self.sent += 1

    def data(self, key):
        return bytes(self.buffers[key].to_bytearray())

    def wait(self, nr=None):
        """Until @nr requests (all) are answered or the connection is gone."""
        nr = self.sent if nr is None else nr
        end = time.monotonic() + PATIENCE
        while len(self.results) < nr:
            if self.h.aio_is_dead() or self.h.aio_is_closed():
                return
            check(time.monotonic() < end,
                  f"{len(self.results)} of {nr} requests were answered")
            self.h.poll(100)

    def all_succeeded(self):
        self.wait()
        equal(len(self.results), self.sent, "answers")
        bad = {k: v for k, v in self.results.items() if v != 0}
        check(not bad, f"requests failed: {bad}")


# Running the tests of one file

_tests = []


def test(function):
    _tests.append(function)
    return function


class _Watcher(threading.Thread):
    """Cleans up on a signal or at the deadline, whatever the test does."""

    def __init__(self):
        super().__init__(daemon=True)
        self.case = None
        self.ending = threading.Event()
        self.ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        signal.set_wakeup_fd(theirs.fileno(), warn_on_full_buffer=False)
        self.theirs = theirs  # Must stay open.
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, lambda *_: None)

    def run(self):
        end = time.monotonic() + DEADLINE if DEADLINE > 0 else None
        while True:
            left = max(0, end - time.monotonic()) if end else None
            ready, _, _ = select.select([self.ours], [], [], left)
            self.ending.set()
            why = (f"signal {self.ours.recv(1)[0]}" if ready
                   else f"not finished after {DEADLINE:.0f} s")
            print(f"FAIL {self.case.name if self.case else ''}: {why}")
            sys.stdout.flush()
            faulthandler.dump_traceback(all_threads=True)
            if self.case:
                show_logs(self.case)
                self.case.cleanup()
            sys.stdout.flush()
            os._exit(1)


def show_logs(case):
    for server in case.servers:
        with contextlib.suppress(OSError):
            text = server.log().strip()
            if text:
                print("  nbdkit said: " + text.replace("\n", "\n  | "))


def main():
    sys.stdout.reconfigure(line_buffering=True)
    adopt_orphans()
    plugin()  # Fails here, once, if there is none.
    watcher = _Watcher()
    watcher.start()
    wanted = sys.argv[1:]
    nr_passed = nr_failed = nr_skipped = 0
    for function in _tests:
        name = function.__name__
        if wanted and name not in wanted:
            continue
        case = Case(name)
        watcher.case = case
        began = time.monotonic()
        try:
            function(case)
            verdict = "ok  "
            nr_passed += 1
        except Skip as e:
            verdict = f"SKIP ({e})"
            nr_skipped += 1
        except Exception:
            verdict = "FAIL"
            nr_failed += 1
            traceback.print_exc(file=sys.stdout)
            show_logs(case)
        finally:
            if watcher.ending.is_set():
                watcher.join()  # It ends the process.
            case.cleanup()
            watcher.case = None
        print(f"{verdict} {name} [{time.monotonic() - began:.2f} s]")
    if nr_failed:
        sys.exit(1)
    sys.exit(SKIPPED if nr_skipped and not nr_passed else 0)
