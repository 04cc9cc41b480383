# SPDX-License-Identifier: BSD-3-Clause
"""Records events of the host's kernel, in trace instances of its own.

Two of them: one for the disk and its file system, whose events come from any
thread of the kernel and are picked by device, and one for system calls, which
are picked by process (ours and all that we start from then on).  Somebody
else's tracing is not disturbed.  Memory is bounded, and what did not fit is
counted: a recording with a hole proves nothing.
"""

import os
import re
import threading

from . import Failed, ringbuffer

_PREFIX = "ubd-chain-"
_BUFFER_KB = 4096  # For each processor and instance.
_PERIOD_S = 0.05  # Filling a buffer within that takes a million events/s.
_PAGE = 65536  # At least a page of the buffer, whatever its size.
DEFAULT_LIMIT = 256 << 20  # Bytes of events that we keep.


def _write(path, text, flags=os.O_WRONLY | os.O_TRUNC):
    fd = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.write(fd, text.encode())
    finally:
        os.close(fd)


def remove_stale(root):
    """Instances of chains that were killed; returns how many."""
    folder = os.path.join(root, "instances")
    removed = 0
    for name in os.listdir(folder):
        match = re.fullmatch(_PREFIX + r"(\d+)-\w+", name)
        if match and not os.path.exists("/proc/" + match.group(1)):
            try:
                os.rmdir(os.path.join(folder, name))
                removed += 1
            except OSError:
                pass  # Somebody reads it.
    return removed


class Instance:
    """One trace instance: made, filled, drained and removed."""

    def __init__(self, root, name):
        self.path = os.path.join(root, "instances",
                                 "%s%d-%s" % (_PREFIX, os.getpid(), name))
        self.formats = {}
        self.pages = []  # (processor, page)
        self.missing = []  # Events that this kernel does not have.
        self._readers = {}
        try:
            os.mkdir(self.path)
        except OSError as e:
            raise Failed("cannot make a trace instance: %s" % e.strerror)
        try:
            self.set("tracing_on", "0")
            self.set("trace_clock", "mono")
            self.set("buffer_size_kb", str(_BUFFER_KB))
        except OSError as e:
            self.remove()
            raise Failed("cannot set up tracing (%s): %s"
                         % (os.path.basename(e.filename or ""), e.strerror))

    def set(self, name, text):
        _write(os.path.join(self.path, name), text)

    def enable(self, system, event, condition=""):
        """False if this kernel has no such event."""
        folder = os.path.join(self.path, "events", system, event)
        try:
            with open(os.path.join(folder, "format"), encoding="ascii") as f:
                layout = ringbuffer.Format(event, f.read())
        except FileNotFoundError:
            self.missing.append(system + ":" + event)
            return False
        try:
            if condition:
                _write(os.path.join(folder, "filter"), condition)
            _write(os.path.join(folder, "enable"), "1")
        except OSError as e:
            raise Failed("cannot trace %s:%s: %s" % (system, event, e.strerror))
        self.formats[layout.number] = layout
        return True

    def follow(self, tid):
        """Only what @tid does from now on, and what it starts."""
        self.set("options/event-fork", "1")
        self.set("set_event_pid", str(tid))

    def start(self):
        folder = os.path.join(self.path, "per_cpu")
        for name in os.listdir(folder):
            self._readers[int(name[3:])] = os.open(
                os.path.join(folder, name, "trace_pipe_raw"),
                os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        self.set("tracing_on", "1")

    def drain(self, room):
        """Take at most @room bytes of what is there; returns how many."""
        taken = 0
        for cpu, fd in self._readers.items():
            while taken < room:
                try:
                    page = os.read(fd, _PAGE)
                except BlockingIOError:
                    break
                if not page:
                    break
                size = 16 + (int.from_bytes(page[8:16], "little") & 0xfffff)
                self.pages.append((cpu, page[:size]))
                taken += size
        return taken

    def lost(self):
        """Events that found no room in the kernel's buffers."""
        total = 0
        folder = os.path.join(self.path, "per_cpu")
        for name in os.listdir(folder):
            with open(os.path.join(folder, name, "stats"),
                      encoding="ascii") as f:
                for key, value in re.findall(r"^(.*): (\d+)$", f.read(),
                                             re.MULTILINE):
                    if key in ("overrun", "commit overrun", "dropped events"):
                        total += int(value)
        return total

    def remove(self):
        for fd in self._readers.values():
            os.close(fd)
        self._readers = {}
        try:
            os.rmdir(self.path)
        except FileNotFoundError:
            pass


class Recording:
    """What Recorder.stop() hands over."""

    def __init__(self, events, lost, missing):
        self.events, self.lost, self.missing = events, lost, missing


class Recorder:
    """Records until stop(); close() in any case."""

    def __init__(self, root, limit=DEFAULT_LIMIT):
        self._limit, self._taken, self._full = limit, 0, False
        self._stop = threading.Event()
        self._thread = None
        self._instances = []
        remove_stale(root)
        try:
            self.disk = self._add(root, "disk")
            self.calls = self._add(root, "calls")
        except BaseException:
            self.close()
            raise

    def _add(self, root, name):
        instance = Instance(root, name)
        self._instances.append(instance)
        return instance

    def start(self):
        for instance in self._instances:
            instance.start()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self):
        while not self._stop.wait(_PERIOD_S):
            self._drain()

    def _drain(self):
        for instance in self._instances:
            self._taken += instance.drain(self._limit - self._taken)
        if self._taken >= self._limit and not self._full:
            self._full = True
            for instance in self._instances:
                instance.set("tracing_on", "0")

    def stop(self):
        """End the recording and return it, in the order of time."""
        for instance in self._instances:
            instance.set("tracing_on", "0")
        self._stop.set()
        self._thread.join()
        self._drain()
        lost = ["%d events of the kernel were lost" % n
                for n in [sum(i.lost() for i in self._instances)] if n]
        if self._full:
            lost.append("the recording was full after %d MiB"
                        % (self._limit >> 20))
        events, gaps = [], 0
        for instance in self._instances:
            for cpu, page in instance.pages:
                found, gap = ringbuffer.page_events(page, cpu,
                                                    instance.formats)
                events += found
                gaps += gap
        if gaps and not lost:
            lost.append("the kernel's buffers have %d gaps" % gaps)
        events.sort(key=lambda e: e.ns)
        missing = [name for i in self._instances for name in i.missing]
        return Recording(events, lost, missing)

    def close(self):
        self._stop.set()
        if self._thread and self._thread.is_alive():
            self._thread.join()
        for instance in self._instances:
            instance.remove()
        self._instances = []
