# SPDX-License-Identifier: BSD-3-Clause
"""The loads: what each asks of a server, and which servers it is about."""

import json
import os
import subprocess

from . import host, servers, slow
from .servers import Failed, Missing

MIB = host.MIB
LEVELS = ("quick", "default", "full")

# Which rows say something.  Each level adds to the one before it.
_READ = (["ours", "nbdkit-null", "nbdkit-file", "qemu-wb"],
         ["qemu-none"],
         ["ours-direct", "ours-uring", "ours-limit", "qemu-wb-threads",
          "qemu-none-threads", "nbd-server", "raw"])
_WRITE = (["ours", "nbdkit-null", "nbdkit-file", "qemu-wb"],
          ["ours-limit", "qemu-none"],
          ["ours-osync", "ours-unsafe", "ours-direct", "ours-uring",
           "ours-nolimit", "nbdkit-file-none", "qemu-wb-threads",
           "qemu-none-threads", "qemu-unsafe", "nbd-server", "raw"])
_SYNC = (["ours", "ours-osync", "nbdkit-file", "qemu-wb", "qemu-none"],
         ["ours-uring", "ours-unsafe", "ours-direct"],
         ["nbdkit-null", "raw", "ours-limit", "ours-syscalls",
          "nbdkit-file-none", "qemu-wb-threads", "qemu-none-threads",
          "qemu-unsafe", "nbd-server"])
_CLEAN = (["ours", "nbdkit-null", "nbdkit-file", "qemu-wb"],
          ["ours-osync"],
          ["ours-unsafe", "ours-uring", "qemu-none", "qemu-wb-threads",
           "qemu-unsafe", "nbd-server"])
_BIG = (["ours", "nbdkit-file", "nbdkit-file-none", "qemu-wb"],
        ["ours-limit", "ours-nolimit", "qemu-none"],
        ["ours-direct", "ours-osync", "ours-unsafe", "nbdkit-null",
         "qemu-wb-threads", "qemu-none-threads", "qemu-unsafe", "nbd-server"])
# Only those that do bypass the page cache, so that a ratio means something.
_DIRECT = (["ours-direct", "qemu-none"], ["nbdkit-null", "raw"],
           ["qemu-none-threads"])
_SLOW = (["ours", "nbdkit-file", "qemu-wb"], [], [])


class Load:
    """One table.

    job/command: a file of scripts/jobs for fio, or a command of nbdload.
    value: field of the result that is compared; unit: its unit.
    in_flight: with flush requests in it: how many acknowledged ones a single
               flush of the disk can cover at most, that is, how many can be
               waiting at one moment.  0: nothing to check.
    pair: what nbdpair calls it, if it can be measured by turns; or None.
    slow: the modelled slow disk that the image lives on; None: the real one.
    least: seconds that a run takes at least, whatever --time says.
    rounds: if it has a number of its own.
    warm: how much of the image is read into the cache beforehand.
    """

    def __init__(self, name, title, level, rows, job=None, command=None,
                 depth=1, jobs=1, every=0, warm=0, area=0, in_flight=0,
                 unit="IOPS", higher=True, seconds=None, direct=False,
                 leaves_dirty=False, without=(), params=None,
                 slow_disk=None, least=0.0, rounds=None, pair=None):
        self.name, self.title, self.level, self.rows = name, title, level, rows
        self.job, self.command = job, command
        self.jobs, self.every, self.pair = jobs, every, pair
        self.warm, self.area, self.in_flight = warm, area, in_flight
        self.unit, self.higher = unit, higher
        self.seconds = seconds  # A guess where --time does not decide.
        self.direct = direct
        self.leaves_dirty = leaves_dirty  # Ends with data not flushed.
        self.without = without
        self.slow, self.least, self.rounds = slow_disk, least, rounds
        self.params = params or {}
        self.depth = self.params.get("depth", depth)
        self.notes = []  # More sentences for the page.

    def server_names(self, level):
        names = []
        for i in range(LEVELS.index(level) + 1):
            names += self.rows[i]
        return [n for n in names if n not in self.without]


def table(size):
    """All loads for an image of @size bytes, in the order they run."""
    area = min(256 * MIB, size)
    seq = min(512 * MIB, size)
    low = min(64 * MIB, size // 4)
    dirty = min(500 * MIB, size // 2) // MIB * MIB
    count = 100000 * size // (1024 * MIB)
    warm = {"area": area, "warm": area}
    loads = []

    def add(*args, **kwargs):
        loads.append(Load(*args, **kwargs))

    for level, depth, jobs in (("quick", 1, 1), ("quick", 32, 1),
                               ("quick", 32, 4)):
        add("read-" + _shape(depth, jobs),
            "4 KiB random reads from the page cache, " + _words(depth, jobs),
            level, _READ, "rand-read", depth=depth, jobs=jobs, pair="read",
            **warm)
    for level, depth, jobs in (("quick", 1, 1), ("quick", 32, 1),
                               ("default", 32, 4)):
        add("write-" + _shape(depth, jobs),
            "4 KiB random writes, no flush, " + _words(depth, jobs),
            level, _WRITE, "rand-write", depth=depth, jobs=jobs, pair="write",
            **warm)
    for level, jobs in (("quick", 1), ("quick", 4), ("full", 8),
                        ("default", 16)):
        add("fsync1-x%d" % jobs,
            "4 KiB random writes, a flush after each, " + _words(1, jobs),
            level, _SYNC, "sync-write", jobs=jobs, every=1, in_flight=jobs,
            pair="fsync",
            # Its queue of new connections is shorter than 16.
            without=("nbd-server",) if jobs == 16 else (), **warm)
    add("fsync32", "4 KiB random writes, a flush after every 32, "
        + _words(32, 1), "quick", _SYNC, "sync-write", depth=32, every=32,
        in_flight=32, **warm)
    add("seq-read", "1 MiB reads in order from the page cache, "
        + _words(8, 1), "quick", _READ, "seq-read", depth=8, unit="MiB/s",
        area=seq, warm=seq)
    add("seq-write", "1 MiB writes in order, no flush, " + _words(8, 1),
        "quick", _WRITE, "seq-write", depth=8, unit="MiB/s", area=size)
    add("flush-clean", "flushes with nothing new to make durable",
        "quick", _CLEAN, command="flush", pair="flush")
    for jobs in (1, 4):
        add("fua-x%d" % jobs, "4 KiB random FUA writes, " + _words(1, jobs),
            "default", _SYNC, job="fua-write", command="fua", jobs=jobs,
            in_flight=jobs, pair="fua",
            params={"conns": jobs, "area": area}, **warm)
    add("database", "4 KiB, 70 % reads, 30 % writes, a flush after each "
        "write, " + _words(1, 8), "default", _SYNC, "database", jobs=8,
        every=1, in_flight=8, **warm)
    add("fua-dirty", "p99 of 4 KiB FUA writes just after %d MiB elsewhere "
        "became dirty" % (dirty // MIB), "default", _BIG,
        command="fua-dirty", unit="us p99", higher=False, in_flight=1,
        warm=low, area=low, seconds=3, leaves_dirty=True,
        params={"area": low, "dirty": dirty, "episodes": 4, "writes": 50})
    add("read-flush", "p99 of 4 KiB cached reads while %d MiB are flushed"
        % (dirty // MIB), "default", _BIG, command="read-flush",
        unit="us p99", higher=False, in_flight=1, warm=low, area=low,
        without=("ours-osync", "nbdkit-null"),  # Their flush takes no time.
        seconds=2, params={"area": low, "dirty": dirty, "episodes": 3})
    for depth in (1, 8):
        add("fill-qd%d" % depth, "%d MiB in order in 1 MiB requests, depth "
            "%d, then a flush" % (size // MIB, depth), "default", _BIG,
            command="fill", unit="s", higher=False, in_flight=1, seconds=2,
            params={"bs": MIB, "depth": depth, "total": size})
    for name, cache in (("scatter", size), ("scatter-cold", 0)):
        add(name, "%d random 8 KiB read/modify/writes in %d MiB (%s cache), "
            "depth 32, then a flush" % (count, size // MIB,
                                       "warm" if cache else "cold"),
            "default" if cache else "full", _BIG, command="scatter",
            unit="s", higher=False, in_flight=1, warm=cache, seconds=4,
            params={"bs": 8192, "depth": 32, "area": size, "count": count})
    for kind in ("read", "write"):
        add("direct-" + kind, "4 KiB random %ss past the page cache, %s"
            % (kind, _words(32, 1)), "default", _DIRECT, "rand-" + kind,
            depth=32, area=size, direct=True, pair=kind)
    for level, jobs, kind, settings in (
            ("default", 1, "", slow.Settings()),
            ("default", 4, "", slow.Settings()),
            ("quick", 16, "", slow.Settings()),
            ("full", 16, "-ext4", slow.Settings(fs="ext4")),
            ("full", 16, "-clean", slow.Settings(also=["clean_flush_ms=0"]))):
        add("slow-x%d%s" % (jobs, kind), "4 KiB random writes, a flush after "
            "each, %s, on a disk that needs 8 ms per flush%s" % (
                _words(1, jobs), {"-ext4": ", with ext4 on it",
                                  "-clean": ", and 0 with nothing to do"}.get(
                                      kind, "")),
            level, _SLOW, "sync-write", jobs=jobs, every=1, in_flight=jobs,
            area=slow.IMAGE_SIZE, slow_disk=settings, least=1.0)
    return loads


def _shape(depth, jobs):
    return "qd%d" % depth + ("x%d" % jobs if jobs > 1 else "")


def _words(depth, jobs):
    return "%d connection%s of depth %d" % (jobs, "s"[:jobs != 1], depth)


class Client:
    """Runs one load against one address and returns its figures."""

    def __init__(self, source, build, folder, milliseconds):
        self.jobs = os.path.join(source, "scripts", "jobs")
        self.code = os.path.join(source, "scripts", "benchlib")
        self.build = build
        self.folder = folder
        self.milliseconds = milliseconds
        self._compiled = {}
        self._can_nbd = None

    def _ms(self, load):
        return max(self.milliseconds, int(load.least * 1000))

    def _seconds(self, load):
        return max(self._ms(load) / 1000, load.seconds or 0)

    def run(self, load, running, image, on_start):
        """@running is None for the image itself.  @on_start is called when
        the client has been started.
        """
        if load.command and running:
            return self._run_nbdload(load, running, image, on_start)
        return self._run_fio(load, running, image, on_start)

    def run_words(self, argv, seconds):
        """The path of what @argv printed, which takes so long or so."""
        return self._wait(argv, seconds, lambda: None)

    def _wait(self, argv, seconds, on_start, **kwargs):
        out = os.path.join(self.folder, "client.out")
        err = os.path.join(self.folder, "client.err")
        with open(out, "w", encoding="utf-8") as o, \
                open(err, "w", encoding="utf-8") as e:
            child = servers.spawn(argv, self.folder, stdout=o, stderr=e,
                                  **kwargs)
            try:
                on_start()
                # Ten times what it should take: a hang, not a slow disk.
                limit = 60 + 10 * seconds
                code = child.wait(limit)
            except subprocess.TimeoutExpired:
                raise Failed("the client did not end in %d s"
                             % limit) from None
            finally:
                if child.poll() is None:
                    child.kill()
                    child.wait()
        if code != 0:
            raise Failed("client: " + servers.last_line(err))
        return out

    def _run_fio(self, load, running, image, on_start):
        fio = servers.find_program("fio", "fio")
        if running and self._can_nbd is None:
            engine = subprocess.run([fio, "--enghelp=nbd"], check=False,
                                    capture_output=True, text=True)
            self._can_nbd = "uri" in engine.stdout
        if running and not self._can_nbd:
            raise Missing("this fio has no nbd engine")
        with open(os.path.join(self.jobs, load.job + ".fio"),
                  encoding="utf-8") as f:
            job = f.read()
        if running:
            where = "ioengine=nbd\nuri=%s\n" % running.uri
        else:
            # What a server has to do for the same promise, and no more.
            job = job.replace("\nfsync=", "\nfdatasync=")
            engine = "io_uring" if load.depth > 1 else "psync"
            # invalidate=0: else fio drops the cache that was just filled.
            where = "ioengine=%s\nfilename=%s\ninvalidate=0\n%s" % (
                engine, image.path, "direct=1\n" if load.direct else "")
        path = os.path.join(self.folder, "job.fio")
        with open(path, "w", encoding="utf-8") as f:
            f.write("[global]\n" + where + job)
        env = dict(os.environ, DEPTH=str(load.depth), JOBS=str(load.jobs),
                   EVERY=str(load.every), AREA=str(load.area),
                   TIME="%dms" % self._ms(load))
        out = os.path.join(self.folder, "fio.json")
        # --output: the nbd engine prints a line of its own on stdout.
        self._wait([fio, "--output-format=json", "--output=" + out, path],
                   self._seconds(load), on_start, env=env)
        return _fio_figures(load, host.read_text(out))

    def _run_nbdload(self, load, running, image, on_start):
        params = dict(load.params, **running.server.client)
        if load.command in ("fua", "flush"):
            params["ms"] = self._ms(load)
        return self.run_program("nbdload", running.uri, load, params, image,
                                on_start)

    def run_program(self, name, where, load, params, image, on_start):
        """Figures of benchlib/NAME.c, which is told what @load asks for."""
        program = self.program(name)
        words = ["%s=%d" % item for item in params.items()]
        also = {}
        if load.command in ("fill", "scatter"):
            words.append("watch=%d" % image.fd)
            also["pass_fds"] = [image.fd]
        out = self._wait([program, where, load.command, *words],
                         self._seconds(load), on_start, **also)
        r = json.loads(host.read_text(out))
        r["p50_us"], r["p99_us"] = r.get("req_p50_us"), r.get("req_p99_us")
        if load.unit == "IOPS":
            r["value"] = r["requests"] / r["seconds"]
        elif load.unit == "s":
            r["value"] = r["seconds"]
        elif r["p99_us"] is None:
            raise Failed("no request fell into the measured time")
        else:
            r["value"] = r["p99_us"]
            # Of a short flush there are few, and their p99 is their maximum.
            r["samples"] = r["req_samples"]
        return r

    def program(self, name):
        """The path of a program made from NAME.c, here or where @source is."""
        if name not in self._compiled:
            self._compiled[name] = self._compile(name)
        return self._compiled[name]

    @staticmethod
    def _links(name):
        """What the program is linked with, as words for the compiler."""
        if name == "guestload":  # There, libraries may be other ones.
            return ["-static"]
        if name not in ("nbdload", "nbdpair"):
            return []
        flags = subprocess.run(
            [servers.find_program("pkg-config", "pkg-config"), "--cflags",
             "--libs", "libnbd"], check=False, capture_output=True, text=True)
        if flags.returncode != 0:
            raise Missing("libnbd's headers are not installed "
                          "(package libnbd-dev)")
        return flags.stdout.split() + ["-lpthread"]

    def _compile(self, name):
        """Built anew if a source is newer."""
        folder = self.build if os.path.isdir(self.build) and os.access(
            self.build, os.W_OK) else self.folder
        path = os.path.join(folder, "bench-" + name)
        code = os.path.join(self.code, name + ".c")
        newest = max(os.path.getmtime(f) for f in (
            code, os.path.join(self.code, "load.h")))
        if os.path.exists(path) and os.path.getmtime(path) > newest:
            return path
        links = self._links(name)
        new = "%s.%d" % (path, os.getpid())
        cc = servers.find_program(os.environ.get("CC", "cc"), "gcc")
        done = subprocess.run(
            [cc, "-std=gnu11", "-D_GNU_SOURCE", "-O2", "-Wall", "-Wextra",
             "-o", new, code, *links],
            check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(name + " does not compile: "
                         + (done.stderr.splitlines() or ["?"])[0])
        os.replace(new, path)  # Another bench may be doing the same.
        return path


def _fio_figures(load, text):
    try:
        job = json.loads(text[text.index("{"):])["jobs"][0]
    except (ValueError, LookupError):
        raise Failed("fio printed no result") from None
    if job["error"]:
        raise Failed("fio: " + os.strerror(job["error"]))
    read, write, sync = job["read"], job["write"], job["sync"]
    main = write if write["total_ios"] else read
    flushes = sync["total_ios"]
    lat = main["clat_ns"].get("percentile", {})
    flush_lat = sync.get("lat_ns", {}).get("percentile", {})
    if load.unit == "MiB/s":
        value = (read["bw_bytes"] + write["bw_bytes"]) / MIB
    else:
        value = read["iops"] + write["iops"]
    seconds = max(read["runtime"], write["runtime"]) / 1000

    def micro(percentiles, which):
        ns = percentiles.get(which)
        return None if ns is None or not flushes and (
            percentiles is flush_lat) else ns / 1000

    fua = load.job == "fua-write"
    return {
        "value": value, "seconds": seconds,
        "requests": read["total_ios"] + write["total_ios"] + flushes,
        "writes": write["total_ios"], "flushes": 0 if fua else flushes,
        "fua": write["total_ios"] if fua else 0,
        "p50_us": micro(lat, "50.000000"), "p99_us": micro(lat, "99.000000"),
        "flush_p50_us": micro(flush_lat, "50.000000"),
        "flush_p99_us": micro(flush_lat, "99.000000"),
    }
