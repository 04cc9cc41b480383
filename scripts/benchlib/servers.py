# SPDX-License-Identifier: BSD-3-Clause
"""The servers that are compared, how each is started and ended."""

import functools
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time

from . import host

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_CONNECTIONS = 64  # Four times the most that a load opens.
_START_SECONDS = 10


class Failed(Exception):
    """A server or client did not do its work; the text says why."""


class Missing(Failed):
    """A program is not installed; the text says which package has it."""


class Server:
    """One row of every table.

    group: "ours", "peer", "ceiling" (stores nothing), "raw" (no server) or
           "again" (a peer that is there already).
    honest: False for a server that by its name promises no durability; its
            row is printed and marked, and is never the best peer.
    direct: it bypasses the page cache, so nothing is read into it beforehand.
    durable_writes: every write is promised to be durable, not only a flush.
    client: what its client does otherwise than the load says (of nbdload).
    label: what tables call it, if not by its name.
    plugin: of ours, another build than the one that is measured; or None.
    """

    plugin = None

    def __init__(self, name, kind, words="", group="peer", honest=True,
                 direct=False, durable_writes=False, client=None, label=None):
        self.name = name
        self.label = label or name
        self.client = client or {}
        self.kind = kind
        self.words = shlex.split(words)
        self.group = group
        self.honest = honest
        self.direct = direct
        self.durable_writes = durable_writes

    @property
    def mark(self):
        if self.group in ("ceiling", "raw"):
            return " (%s)" % self.group
        return "" if self.honest else " (unsafe)"


def ours(name, words, **kwargs):
    """A row of our plugin with these words."""
    modes = dict(w.split("=", 1) for w in shlex.split(words) if "=" in w)
    mode = modes.get("cache", "barrier")
    direct = mode in ("none", "directsync") or modes.get(
        "direct", "false").lower() in ("true", "on", "yes", "1")
    return Server(name, "ubd", words, "ours", mode != "unsafe", direct,
                  mode in ("osync", "writethrough", "directsync"), **kwargs)


def known():
    """All rows by name, in the order in which they are printed."""
    rows = [
        ours("ours", "cache=barrier"),
        ours("ours-osync", "cache=osync"),
        ours("ours-unsafe", "cache=unsafe"),
        ours("ours-direct", "cache=barrier direct=true"),
        ours("ours-uring", "cache=barrier io=io_uring"),
        ours("ours-syscalls", "cache=barrier io=syscalls"),
        ours("ours-limit", "cache=barrier dirty-limit=64M"),
        ours("ours-nolimit", "cache=barrier dirty-limit=0"),
        ours("ours-metrics", "cache=barrier metrics={folder}/metrics"),
        ours("ours-trace", "cache=barrier trace={folder}/trace"),
        Server("nbdkit-null", "null", group="ceiling", honest=False),
        Server("nbdkit-file", "file"),
        # Once more, to see what difference is none.
        Server("nbdkit-file-again", "file", group="again"),
        Server("nbdkit-file-none", "file", "cache=none"),
    ]
    for name, cache in (("wb", "writeback"), ("none", "none"),
                        ("unsafe", "unsafe")):
        for suffix, aio in (("", "io_uring"), ("-threads", "threads")):
            rows.append(Server(
                "qemu-%s%s" % (name, suffix), "qemu",
                "--cache=%s --aio=%s" % (cache, aio),
                honest=cache != "unsafe", direct=cache == "none"))
    rows.append(Server("nbd-server", "nbd-server"))
    rows.append(Server("raw", "raw", group="raw"))
    return {s.name: s for s in rows}


def custom(text):
    """The row of --server 'name=plugin words'."""
    name, eq, words = text.partition("=")
    if not eq or not re.fullmatch(r"[\w.+-]+", name) or not words.strip():
        raise ValueError(
            "--server '%s': expected NAME=WORDS, as in "
            "'ours-uring=cache=barrier io=io_uring'" % text)
    builds = [w for w in shlex.split(words) if w.startswith("plugin=")]
    server = ours(name, words)
    if builds:
        server.words = [w for w in server.words if w not in builds]
        server.plugin = os.path.abspath(builds[-1].partition("=")[2])
        if not os.path.isfile(server.plugin):
            raise ValueError("--server '%s': no file %s; expected plugin=PATH "
                             "of a built plugin" % (text, server.plugin))
    return server


def find_program(name, package):
    path = shutil.which(name)
    if not path:
        raise Missing("%s is not installed (package %s)" % (name, package))
    return path


@functools.lru_cache(maxsize=None)
def _plugin_help(plugin):
    done = subprocess.run(["nbdkit", plugin, "--help"], check=False, text=True,
                          capture_output=True)
    return done.stdout


def plugin_has(plugin, option):
    return re.search("^%s=" % re.escape(option), _plugin_help(plugin),
                     re.MULTILINE) is not None


def default_limit(plugin):
    """Bytes of the plugin's dirty-limit if it is not set; None: unknown."""
    m = re.search(r"^dirty-limit=.*\(default: (\d+)([KMG]?)",
                  _plugin_help(plugin), re.MULTILINE)
    return m and int(m[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[m[2]]


_group = os.setsid


def setup_process(one_session=False):
    """Orphans of a daemon become our children, so that sweep() finds them.

    @one_session: servers and clients stay in the session of ours.  Linux shares
    the processors out among sessions first (sched_autogroup), as among services.
    """
    global _group
    host.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    if one_session:
        _group = os.setpgrp


def _die_with_parent():
    host.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def spawn(argv, cwd, namespace=None, **kwargs):
    """Start a child that neither sees our Ctrl-C nor outlives us; in the
    mount namespace of the descriptor @namespace, if there is one.
    """
    def prepare():
        _group()
        _die_with_parent()
        if namespace is not None:
            host.enter_mounts(namespace)
            os.chdir(cwd)

    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, cwd=cwd,
                            preexec_fn=prepare, **kwargs)


def last_line(path):
    """What a program said in the end; rather the error than advice after it.
    """
    lines = [x for x in host.read_text(path).splitlines() if x.strip()]
    errors = [x for x in lines if "error:" in x]
    return (errors or lines or ["no message"])[-1].strip()


def children_of(pid):
    found = []
    for task in _list("/proc/%d/task" % pid):
        text = host.read_text("/proc/%d/task/%s/children" % (pid, task))
        found += [int(x) for x in text.split()]
    return found


def _list(folder):
    try:
        return os.listdir(folder)
    except OSError:
        return []


def sweep():
    """End whatever is still below us (Ctrl-C in the middle of a start)."""
    for pid in children_of(os.getpid()):
        try:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        except OSError:
            pass


class Running:
    """A started server."""

    def __init__(self, server, image, folder, plugin, namespace=None):
        self.server = server
        self.folder = folder
        self.socket = os.path.join(folder, "s")
        self.log = os.path.join(folder, "server.log")
        self.pidfile = os.path.join(folder, "pid")
        self.export = ""
        self.process = None
        self.pid = None
        for path in (self.socket, self.pidfile,
                     os.path.join(folder, "metrics"),
                     os.path.join(folder, "trace")):
            if os.path.exists(path):
                os.unlink(path)
        if len(os.fsencode(self.socket)) > 107:  # sun_path of unix(7)
            raise Failed("%s is too long a name for a socket; set TMPDIR"
                         % self.socket)
        argv = self._argv(server, image, plugin)
        try:
            with open(self.log, "w", encoding="utf-8") as log:
                self.process = spawn(argv, folder, namespace, stdout=log,
                                     stderr=log)
            self.pid = self.process.pid
            self._wait_until_ready(server)
        except BaseException:
            self.stop()
            raise

    def _argv(self, server, image, plugin):
        if server.kind == "qemu":
            return [find_program("qemu-nbd", "qemu-utils"), "-f", "raw", "-t",
                    "-e", str(_CONNECTIONS), "-k", self.socket,
                    *server.words, image.path]
        if server.kind == "nbd-server":
            program = find_program("nbd-server", "nbd-server")
            self.export = "disk"
            conf = self.socket + ".conf"
            with open(conf, "w", encoding="utf-8") as f:
                f.write("[generic]\nunixsock = %s\n[disk]\nexportname = %s\n"
                        "flush = true\nfua = true\ntrim = true\n"
                        % (self.socket, image.path))
            # It can only serve several clients as a daemon.
            return [program, "-C", conf, "-p", self.pidfile]
        program = find_program("nbdkit", "nbdkit")
        plugin = server.plugin or plugin
        if server.kind == "ubd" and not os.path.exists(plugin):
            raise Missing("no %s: run scripts/build"
                          % os.path.basename(plugin))
        for option in ("dirty-limit", "metrics", "trace"):
            if server.kind == "ubd" and not plugin_has(plugin, option) and (
                    any(w.startswith(option + "=") for w in server.words)):
                raise Missing("this plugin has no " + option)
        # Options of nbdkit itself have to come before the plugin.
        options = [w for w in server.words if w.startswith("-")]
        words = [w.replace("{folder}", self.folder) for w in server.words
                 if not w.startswith("-")]
        argv = [program, "-f", "--exit-with-parent", "-U", self.socket,
                *options]
        if server.kind == "null":
            return argv + ["null", str(image.size)]
        name = plugin if server.kind == "ubd" else "file"
        return argv + [name, "file=" + image.path, *words]

    def _wait_until_ready(self, server):
        daemon = server.kind == "nbd-server"
        give_up = time.monotonic() + _START_SECONDS
        while time.monotonic() < give_up:
            code = self.process.poll()
            if code is not None and not (daemon and code == 0):
                raise Failed("does not start: " + last_line(self.log))
            ready = os.path.exists(self.socket)
            if ready and daemon:
                text = host.read_text(self.pidfile).strip()
                ready = code is not None and text.isdigit()
                self.pid = int(text) if ready else self.pid
            if ready and self._accepts():
                return
            time.sleep(0.002)
        raise Failed("not ready within %d seconds: %s"
                     % (_START_SECONDS, last_line(self.log)))

    def _accepts(self):
        with socket.socket(socket.AF_UNIX) as s:
            try:
                s.connect(self.socket)
                return True
            except OSError:
                return False

    @property
    def uri(self):
        return "nbd+unix:///%s?socket=%s" % (self.export, self.socket)

    def cpu_seconds(self):
        """User and system time of the server, its threads (those of the
        kernel's io_uring workers too) and its children, ended ones included.
        Work that the kernel does in threads of its own is in nobody's time.
        """
        ticks = 0
        for pid in [self.pid] + children_of(self.pid):
            stat = host.read_text("/proc/%d/stat" % pid)
            field = stat.rpartition(")")[2].split()
            if len(field) > 14:
                ticks += sum(int(x) for x in field[11:15])
        return ticks / os.sysconf("SC_CLK_TCK")

    def stop(self):
        process, self.process = self.process, None
        if not process:
            return
        if self.pid != process.pid:  # A daemon; setup_process adopted it.
            for sig in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.kill(self.pid, sig)
                except OSError:
                    break
                if _reap(self.pid, 10):
                    break
        process.terminate()
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _reap(pid, seconds):
    give_up = time.monotonic() + seconds
    while time.monotonic() < give_up:
        try:
            if os.waitpid(pid, os.WNOHANG)[0]:
                return True
        except ChildProcessError:
            return True
        time.sleep(0.005)
    return False
