# SPDX-License-Identifier: BSD-3-Clause
"""The second complaint: a guest writes and syncs, and the host looks at what
reached its disk.
"""

import contextlib
import os
import select
import shlex
import shutil
import subprocess
import time

from benchlib import host, results, runner, servers, slow
from benchlib.results import number
from benchlib.servers import Failed
from . import places, tables
from .tables import MIB, count_of, median_of

_SCRIPT = os.path.join(runner.SOURCE, "scripts", "guest")
_BOOT_S = 120  # Guests boot in seconds; this machine may be busy.
_SLOW = {"rpm": 7200, "seek_ms": 8, "rate_mb": 120}
_THEN = {"uml-ubd-osync": 598, "uml-barrier": 20, "uml-ubd": 9}


class Guest(servers.Server):
    """A row.  options: words for scripts/guest.  host_syncs: the host's sync
    of the image belongs to it.
    """

    def __init__(self, name, kind, label, options, group="peer", honest=True,
                 host_syncs=False):
        super().__init__(name, kind, group=group, honest=honest, label=label)
        self.options = options.split()
        self.host_syncs = host_syncs


def _rows(with_qemu=True):
    rows = [
        Guest("uml-ubd", "uml", "UML ubd", "--attach ubd", honest=False),
        Guest("uml-ubd-hostsync", "uml", "UML ubd, then a host sync",
              "--attach ubd", host_syncs=True),
        Guest("uml-ubd-osync", "uml", "UML ubd with O_SYNC", "--attach ubds"),
    ]
    for kind, attach, text in (("uml", "vhost", "UML"),
                               ("qemu", "virtio", "qemu"))[:1 + with_qemu]:
        for mode in ("unsafe", "barrier", "osync"):
            rows.append(Guest(
                "%s-%s" % (kind, mode), kind,
                "%s over ours, %s" % (text, mode),
                "--attach %s --cache %s" % (attach, mode), "ours",
                mode != "unsafe"))
    for mode in ("unsafe", "writeback", "writethrough") if with_qemu else ():
        rows.append(Guest("qemu-raw-" + mode, "qemu", "qemu raw, " + mode,
                          "--attach raw --client-cache " + mode,
                          honest=mode != "unsafe"))
    return rows


def _columns(result):
    flushes_at_end = result.load.fs == "ext2"
    columns = [
        ("write s", median_of("guest_write_seconds")),
        ("sync s", median_of("guest_sync_seconds")),
        ("device sync s", median_of("guest_device_sync_seconds"))
        if flushes_at_end else None,
        ("all, host's clock s", lambda r: number(r.median())),
        ("spread", results.spread),
        ("x barrier", lambda r: _ratio(result, r)),
        ("x barrier in 2013", lambda r: "%.2f" % (
            _THEN[r.server] / _THEN["uml-barrier"])
         if r.server in _THEN else "-") if result.load.is_slow else None,
        ("left dirty MB", median_of("left_bytes", 1e6)),
        ("host sync after s", median_of("host_sync_seconds")),
        ("host flushes", count_of("host_flushes")),
    ]
    return [c for c in columns if c]


def _ratio(result, row):
    """To the barrier mode of the same kind of guest."""
    kind = row.server.split("-")[0]
    better = row.ratio(result.rows.get(kind + "-barrier"))
    return "%.2f" % (1 / better) if better else "-"


class GuestSeed(tables.Seed):
    def __init__(self, name, fs, mib, is_slow, rounds, rows):
        where = "a modelled disk of %d rpm, %d MB/s" % (
            _SLOW["rpm"], _SLOW["rate_mb"]) if is_slow else (
                "ext4 on a loop device of its own")
        super().__init__(
            2, name, "%d MiB into %s in a guest, then sync%s; image on %s" % (
                mib, fs, ", then fsync of the device, since %s's sync does "
                "not flush it" % fs if fs == "ext2" else "", where),
            columns=_columns, rows=rows, parts=[
                ("write", "guest_write_seconds"),
                ("sync", "guest_sync_seconds"),
                ("fsync of the device", "guest_device_sync_seconds"),
                ("host sync after it", "host_sync_seconds")],
            old="2013, 800 MB: 598 s with O_SYNC, 20 s with a sync that is "
            "honoured, 9 s with none", reference="uml-barrier",
            seconds=4, rounds=rounds)
        self.fs, self.mib, self.is_slow = fs, mib, is_slow

    @contextlib.contextmanager
    def place(self, bench):
        if self.is_slow:
            settings = slow.Settings(flush_ms=0, cache="writeback", also=[
                "%s=%d" % item for item in _SLOW.items()])
            made = slow.SlowDisk(runner.SOURCE, bench.folder, settings)
        else:
            # Room for the file system's own.
            size = (self.mib * 5 // 4 + 64) * MIB
            bench.need_room(size + places.OVERHEAD)
            made = places.LoopDisk(bench.place, bench.folder, size)
        with made as place:
            yield place


def tables_of(level, scale, rounds):
    mib = max(8, (100 if level == "quick" else 800) // scale)
    slow_mib = max(1, {"quick": 4, "default": 12, "full": 25}[level] // scale)
    return [
        GuestSeed("guest-ext2", "ext2", mib, False, rounds, _rows()),
        GuestSeed("guest-ext4", "ext4", mib, False, rounds, _rows()),
        GuestSeed("guest-slow", "ext2", slow_mib, True, rounds,
                  _rows(level == "full")),
    ]


class Conversation:
    """The lines of a guest, with the host's time of their arrival."""

    def __init__(self, child, log, give_up):
        self.child, self.log, self.give_up = child, log, give_up
        self.pending = b""
        self.guest, self.host = {}, {}

    def _line(self):
        fd = self.child.stdout.fileno()
        while b"\n" not in self.pending:
            wait = max(0, self.give_up - time.monotonic())
            if not select.select([fd], [], [], wait)[0]:
                raise Failed("the guest did not end in time")
            more = os.read(fd, 65536)
            if not more:
                self.child.wait()
                why = servers.last_line(self.log)
                if "is not installed" in why:
                    raise servers.Missing(why)
                raise Failed("the guest ended early: " + why)
            self.pending += more
        line, self.pending = self.pending.split(b"\n", 1)
        return line.decode(errors="replace").strip()

    def until(self, step):
        """Read on until the guest says that it has done @step."""
        while step not in self.guest:
            words = self._line().split(maxsplit=2)
            if words[:2] == ["seeds", "failed"]:
                raise Failed("in the guest: " + " ".join(words[2:]))
            if len(words) == 3 and words[0] == "seeds":
                self.host[words[1]] = time.monotonic()
                self.guest[words[1]] = float(words[2])


def _make_fs(bench, load):
    """Anew for each run, all of it, so that nothing is left for later; with
    the blocks that a large one has, since a smaller write than a page makes
    the host read the rest of the page.
    """
    path = bench.image.path
    done = servers.spawn(
        [servers.find_program("mkfs." + load.fs, "e2fsprogs"), "-q", "-F",
         "-b", "4096", "-E", "nodiscard,lazy_itable_init=0" + (
             ",lazy_journal_init=0" if load.fs == "ext4" else ""), path],
        bench.folder, bench.namespace, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, text=True)
    _, said = done.communicate()
    if done.returncode != 0:
        raise Failed("mkfs.%s: %s" % (load.fs, said.strip()[-200:]))


def _command(bench, load, server, share):
    inside = ("mount -t %s $DISK /mnt && exec /share/guestload /mnt/file "
              "$DISK %d /share/go" % (load.fs, load.mib))
    return [_SCRIPT, server.kind, "--disk", bench.image.path, *server.options,
            "--share", share, "--timeout", str(_limit(load)), "--run", inside]


def _limit(load):
    """Seconds; small synchronous writes on a slow disk take 10 ms each."""
    return _BOOT_S + load.mib * (256 * 0.05 if load.is_slow else 1)


def measure(bench, load, server):
    """One guest from its start to its end: the figures, or Failed."""
    if not os.path.exists(_SCRIPT):
        raise servers.Missing("there is no scripts/guest")
    _make_fs(bench, load)
    trouble = bench.image.settle(0)
    if trouble:
        bench.note(trouble)
    share = os.path.join(bench.folder, "share")
    shutil.rmtree(share, ignore_errors=True)
    os.mkdir(share)
    shutil.copy(bench.client.program("guestload"),
                os.path.join(share, "guestload"))
    log = os.path.join(bench.folder, "guest.log")
    env = dict(os.environ, UBD_PLUGIN=bench.plugin,
               UBD_BUILD=bench.client.build)
    start, before = time.monotonic(), bench.disk.read()
    sampler = host.DirtySampler(bench.image)
    with open(log, "w", encoding="utf-8") as err:
        child = servers.spawn(_command(bench, load, server, share),
                              bench.folder, bench.namespace,
                              stdout=subprocess.PIPE, stderr=err, env=env)
    try:
        sampler.start()
        talk = Conversation(child, log, start + _limit(load) + 30)
        talk.until("device")
        r = _figures(bench, load, server, talk, before)
        r["peak_dirty"] = sampler.stop()
        with open(os.path.join(share, "go"), "wb"):
            pass
        _wait_for_end(child, talk)
    finally:
        _end(child)
        if sampler.is_alive():
            sampler.stop()
    r["boot_seconds"] = talk.host["ready"] - start
    refused = _cheats(bench, server, r)
    if refused:
        raise Failed(refused)
    return r


def _figures(bench, load, server, talk, before):
    """While the guest, having synced, waits."""
    left = bench.image.cache()
    done = bench.disk.read()
    start = time.monotonic()
    os.fdatasync(bench.image.fd)
    sync = time.monotonic() - start
    if server.host_syncs:
        done = bench.disk.read()
    guest, at = talk.guest, talk.host
    total = at["device"] - at["ready"] + (sync if server.host_syncs else 0)
    inside = guest["written"] + guest["synced"] + guest["device"]
    if abs(inside - (at["device"] - at["ready"])) > 0.1 + inside * 0.1:
        bench.note("%s, %s: the guest's clock says %.2f s where the host's "
                   "says %.2f s" % (load.name, server.name, inside,
                                    at["device"] - at["ready"]))
    return {
        "value": total, "seconds": total,
        "guest_write_seconds": guest["written"],
        "guest_sync_seconds": guest["synced"],
        "guest_device_sync_seconds": guest["device"],
        "host_write_seconds": at["written"] - at["ready"],
        "host_flush_seconds": at["device"] - at["written"],
        "left_bytes": left and left[1], "host_sync_seconds": sync,
        "distinct_bytes": load.mib * MIB,
        "host_flushes": done[0] - before[0],
        "host_bytes": done[2] - before[2],
    }


def _cheats(bench, server, r):
    """Why a row that promises durability cannot have kept it, or ""."""
    if not server.honest:
        return ""
    left = r["left_bytes"]
    if left and left > MIB and not server.host_syncs:
        return "refused: the guest has synced, %d MiB still dirty" % (
            left // MIB)
    if not bench.disk.why_unknown and not r["host_flushes"]:
        return "refused: the guest has synced, the disk completed no flush"
    return ""


def _wait_for_end(child, talk):
    """Its output is read until the end, so that it never waits for us."""
    with contextlib.suppress(Failed):
        talk.until("nothing that it says")
    if child.wait() != 0:
        raise Failed("the guest: exit status %d: %s" % (
            child.returncode, servers.last_line(talk.log)))


def _end(child):
    """scripts/guest takes everything of its guest with it."""
    if child.poll() is None:
        child.terminate()
        try:
            child.wait(30)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
    child.stdout.close()


def versions():
    found = []
    for argv in (["linux.uml", "--version"],
                 ["qemu-system-x86_64", "--version"]):
        program = shutil.which(argv[0])
        if program:
            done = subprocess.run([program, *argv[1:]], check=False, text=True,
                                  stdin=subprocess.DEVNULL,
                                  capture_output=True)
            text = (done.stdout.splitlines() or ["?"])[0]
            found.append("UML " + text if "uml" in argv[0] else text)
    return [("guests", ", ".join(found))] if found else []
