# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command with everything recorded, and puts the records together."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import urllib.parse

from . import Failed, disks, kernel, records, tracefs

_PATIENCE_S = 60
_INIT_PID_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO of the kernel.
WITHOUT_SERVER = ("ubd", "ubds", "raw")


class Outcome:
    def __init__(self, run, status):
        self.run, self.status = run, status


def _refuse_where_impossible():
    if os.geteuid() != 0:
        raise Failed("needs root: the kernel's events are root's to see")
    if os.readlink("/proc/self/ns/pid") != _INIT_PID_NAMESPACE:
        raise Failed("needs the host's process namespace: in a container the"
                     " kernel's events name other process numbers")


def _mount_tracefs(folder):
    path = os.path.join(folder, "tracing")
    disks.mount("tracefs", "none", path)
    if not os.path.isdir(os.path.join(path, "instances")):
        raise Failed("this kernel has no trace instances")
    return path


class Watcher:
    """sync-watch, built for this run."""

    def __init__(self, source, folder):
        self.path = os.path.join(folder, "sync-watch")
        cc = os.environ.get("CC", "cc")
        code = os.path.join(source, "scripts", "chainlib", "sync-watch.c")
        try:
            done = subprocess.run(
                [cc, "-std=gnu11", "-O2", "-Wall", "-Wextra", "-static",
                 "-o", self.path, code], stdin=subprocess.DEVNULL, text=True,
                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False)
        except FileNotFoundError:
            raise Failed("a C compiler (%s) is needed to watch a guest"
                         % cc) from None
        if done.returncode != 0:
            raise Failed("cannot build sync-watch: %s"
                         % done.stdout.strip().splitlines()[-1])

    def calibrate(self):
        done = subprocess.run([self.path, "--calibrate"], check=True,
                              stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout)


# ---- The server ----

class Server:
    """nbdkit with the plugin, which writes its trace."""

    def __init__(self, o, folder, image):
        self.socket = os.path.join(folder, "s")
        self.trace = os.path.join(folder, "trace.json")
        self._log = os.path.join(folder, "server.log")
        pidfile = os.path.join(folder, "server.pid")
        words = ["cache=" + o.cache, "trace=" + self.trace]
        words += ["io=" + o.io] if o.io else []
        with open(self._log, "wb") as log:
            try:
                self._process = subprocess.Popen(
                    ["nbdkit", "--foreground", "--exit-with-parent",
                     "--pidfile", pidfile, "--unix", self.socket,
                     o.plugin_file, "file=" + image, *words, *o.plugin],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            except FileNotFoundError:
                raise Failed("nbdkit is not installed") from None
        give_up = time.monotonic() + _PATIENCE_S
        while not (os.path.exists(pidfile) and os.path.getsize(pidfile)):
            if self._process.poll() is not None:
                raise Failed("the server did not start: " + self.message())
            if time.monotonic() > give_up:
                self.stop()
                raise Failed("the server did not start in time")
            time.sleep(0.002)

    @property
    def uri(self):
        return "nbd+unix:///?socket=" + urllib.parse.quote(self.socket)

    def message(self):
        with open(self._log, encoding="utf-8", errors="replace") as f:
            lines = f.read().strip().splitlines()
        return lines[-1] if lines else "no message"

    def stop(self):
        """Politely: it writes the end of its trace."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                self._process.kill()
        return self._process.wait()

    def read_trace(self):
        with open(self.trace, encoding="utf-8") as f:
            return records.parse_plugin_trace(f.read())


# ---- The command ----

def _run_on_host(o, server):
    environment = dict(os.environ, NBD_SOCKET=server.socket,
                       NBD_URI=server.uri)
    return _wait_for(o.command, environment, o.timeout)


def _wait_for(argv, environment, timeout):
    """Its status as a shell has it; what it leaves running is not ours."""
    # If we are killed it ends as well.
    process = subprocess.Popen(["setpriv", "--pdeathsig", "TERM", "--", *argv],
                               env=environment)
    try:
        status = process.wait(timeout)
    except subprocess.TimeoutExpired:
        raise Failed("the command took more than %g s (--timeout)"
                     % timeout) from None
    finally:
        if process.poll() is None:
            process.terminate()
            try:
                process.wait(5)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
    return status if status >= 0 else 128 - status


def _run_in_guest(o, server, image, folder, watcher):
    """(status, text of the guest's record of its syncs)"""
    share = os.path.join(folder, "share")
    os.mkdir(share)
    shutil.copy(watcher.path, share)
    with open(os.path.join(share, "command"), "w", encoding="utf-8",
              errors="surrogateescape") as f:
        f.write(o.command_text + "\n")
    inside = '/share/sync-watch --log /share/record --disk "$DISK"%s' \
        ' -- /bin/sh /share/command' % (
            " --probe /share" if o.guest == "qemu" else "")
    argv = [os.path.join(o.source, "scripts", "guest"), o.guest, "--attach",
            o.attach, "--share", share, "--timeout", "%g" % o.timeout,
            "--run", inside]
    argv += ["--socket", server.socket] if server else ["--disk", image]
    argv += o.guest_words
    status = _wait_for(argv, dict(os.environ, UBD_PLUGIN=o.plugin_file),
                       o.timeout + 60)
    try:
        with open(os.path.join(share, "record"), encoding="utf-8",
                  errors="replace") as f:
            return status, f.read()
    except FileNotFoundError:
        raise Failed("the guest did not run the command (status %d)"
                     % status) from None


# ---- Together ----

def _add_guest_syncs(run, text, clock, events):
    syncs, probes, cost, run.nr_other_syncs, problems = \
        records.parse_guest_record(text)
    run.problems += problems
    error = clock.error
    if run.guest == "qemu":
        placed = records.place_probes(
            probes, kernel.calls_named(events, "mkdirat"), clock)
        if placed is None:
            raise Failed("cannot tie the guest's clock to the host's: no call"
                         " of qemu was seen for what the guest did")
        clock.shift(placed[0])
        error += placed[1]
    run.slack = max(run.slack, error)
    run.watch_cost = clock.length(cost)
    for sync in syncs:
        sync.begin, sync.end = clock.ns(sync.begin), clock.ns(sync.end)
    run.guest_syncs = records.number_syncs(syncs)


def _add_notes(o, run, watched, missing):
    for disk in watched:
        if disk.name.startswith("loop"):
            run.notes.append(
                "disk %s is a loop device: its flush is a sync of the file"
                " under it, which is not followed further" % disk.name)
        if not disk.volatile:
            run.notes.append(
                "disk %s has no volatile cache (queue/write_cache is \"write"
                " through\"): the block layer sends it no flush"
                % disk.name)
    if o.disk is not None:
        run.notes.append("disk %s may have other users: a write or a flush of"
                         " theirs at that time looks the same; a private disk"
                         " has none" % ", ".join(d.name for d in watched))
    needed = [m for m in missing if m.startswith("block:")]
    if needed:
        raise Failed("this kernel has no event " + needed[0])


def collect(o):
    """Run @o's command; an Outcome."""
    _refuse_where_impossible()
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="ubd-chain-")
        stack.callback(shutil.rmtree, folder, ignore_errors=True)
        disks.enter_namespace()
        tracing = _mount_tracefs(folder)
        stack.callback(disks.unmount, tracing)
        image = o.disk
        if image is None:
            private = disks.PrivateDisk(folder, o.private_disk, o.size)
            stack.callback(private.close)
            image = private.image
        return _collect_on(o, stack, folder, tracing, os.path.realpath(image))


def _collect_on(o, stack, folder, tracing, image):
    run = records.Run(mode=o.promise, guest=o.guest or "",
                      attach=o.attach or "",
                      has_server=o.attach not in WITHOUT_SERVER)
    below = disks.disks_under(image)
    run.disks = [records.WatchedDisk(d.name, d.number, d.has_volatile_cache)
                 for d in below]
    watcher = Watcher(o.source, folder) if o.guest else None
    recorder = tracefs.Recorder(tracing, o.limit)
    stack.callback(recorder.close)
    run.sees_image_syncs = kernel.enable(recorder, below, image, os.getpid())
    if o.promise == "barrier":
        kernel.enable_cached(recorder, image)
    if not run.has_server:
        run.sees_image_changes = kernel.enable_changes(recorder, image)
    before = watcher.calibrate() if watcher else None
    recorder.start()
    server = Server(o, folder, image) if run.has_server else None
    if server:
        stack.callback(server.stop)
    text = None
    if o.guest:
        status, text = _run_in_guest(o, server, image, folder, watcher)
    else:
        status = _run_on_host(o, server)
    after = watcher.calibrate() if watcher else None
    if server and server.stop() != 0:
        run.problems.append("the server did not end well: "
                            + server.message())
    recording = recorder.stop()
    run.problems += recording.lost
    _add_notes(o, run, run.disks, recording.missing)
    run.blocks = kernel.block_ops(recording.events)
    run.host_syncs = kernel.host_syncs(recording.events, run.sees_image_syncs)
    run.cached_writes = kernel.cached_writes(recording.events)
    run.image_changes = kernel.image_changes(recording.events)
    if server:
        _, run.requests, problems = server.read_trace()
        run.problems += problems
    if text is not None:
        _add_guest_syncs(run, text, records.TscClock(before, after),
                         recording.events)
    else:
        run.guest_syncs = records.syncs_of_client(run.requests)
    return Outcome(run, status)
