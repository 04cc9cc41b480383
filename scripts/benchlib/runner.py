# SPDX-License-Identifier: BSD-3-Clause
"""Runs loads against servers, interleaved, and says how long it will take."""

import contextlib
import os
import sys
import time

from . import host, loads, paired, results, servers, slow

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(
    os.path.realpath(__file__))))


class Progress:
    """One line on stderr that says what runs and how long the rest takes."""

    def __init__(self, plan, rounds, seconds):
        self.seconds = seconds
        self.total = sum(len(rows) * (load.rounds or rounds)
                         for load, rows in plan)
        self.done = 0
        self.left = sum(self._guess(load) * len(rows) * (load.rounds or rounds)
                        for load, rows in plan)
        self.guessed = self.spent = 0.0
        self.tty = sys.stderr.isatty()
        self.last = None

    def _guess(self, load):
        """Client, start and end, and filling the cache at 1 GiB/s."""
        return (load.seconds or max(self.seconds, load.least)) + (
            0.5 + load.warm / (1 << 30))

    def expected(self):
        """Seconds for what is left, at the pace so far."""
        return self.left * (self.spent / self.guessed if self.guessed else 1)

    def show(self, load, number, rounds, server):
        left = int(self.expected())
        text = "[%d/%d] %s, round %d of %d, %s; about %d:%02d left" % (
            self.done + 1, self.total, load.name, number + 1, rounds,
            server.name if server else "all by turns", left // 60, left % 60)
        if self.tty:
            sys.stderr.write("\r\033[K" + text)
        elif self.last != (load.name, number):
            sys.stderr.write(text + "\n")
        self.last = load.name, number
        sys.stderr.flush()

    def count(self, load, spent):
        """@spent seconds for one run; None if it could not be made."""
        self.done += 1
        self.left -= self._guess(load)
        if spent is not None:
            self.guessed += self._guess(load)
            self.spent += spent

    @contextlib.contextmanager
    def timed(self, load, runs):
        """What is done in it are @runs runs."""
        start = time.monotonic()
        yield
        for _ in range(runs):
            self.count(load, (time.monotonic() - start) / runs)

    def skip(self, load, runs):
        for _ in range(runs):
            self.count(load, None)

    def clear(self):
        if self.tty:
            sys.stderr.write("\r\033[K")
            sys.stderr.flush()


class Bench:
    def __init__(self, args, image, disk, folder):
        self.rounds, self.seconds = args.rounds, args.time
        self.give_up = args.budget and time.monotonic() + args.budget
        self.plugin = os.path.abspath(args.plugin)
        self.image, self.disk, self.folder = image, disk, folder
        self.namespace = None  # Of mounts, where the image is; None: ours.
        build = os.environ.get("UBD_BUILD") or os.path.join(SOURCE, "build")
        self.client = loads.Client(SOURCE, build, folder,
                                   max(1, int(args.time * 1000)))
        self.pool = paired.Pool(os.path.dirname(image.path), folder,
                                args.size) if args.paired else None
        self.notes = []
        self.new_result = results.Result  # How the figures are shown.

    def note(self, text):
        if text not in self.notes:
            self.notes.append(text)

    def measure(self, load, server):
        """One run: the figures, or Failed."""
        start, flushes = time.monotonic(), self.disk.read()[0]
        trouble = self.image.settle(0 if server.direct else load.warm)
        others = (self.disk.read()[0] - flushes - 2) / max(
            0.05, time.monotonic() - start)  # Ours are one or two.
        if others > 100:
            self.note("others flush this disk too, more than 100 times a "
                      "second: the honesty check by its counter is weak")
        if trouble:
            self.note(trouble)
        running = None
        if server.group != "raw":
            running = servers.Running(server, self.image, self.folder,
                                      self.plugin, self.namespace)
        sampler = host.DirtySampler(self.image)
        try:
            cpu = running.cpu_seconds() if running else 0
            before = self.disk.read()
            r = self.client.run(load, running, self.image, sampler.start)
            after = self.disk.read()
            cpu = running.cpu_seconds() - cpu if running else None
            left = self.image.cache()
            self.look_after(load, r)
        finally:
            peak = sampler.stop() if sampler.ident else None
            if running:
                running.stop()
        if not r["requests"]:
            raise servers.Failed("no request was answered in %g s"
                                 % self.seconds)
        r["host_flushes"], r["host_writes"], r["host_bytes"] = (
            a - b for a, b in zip(after, before))
        r["cpu_us"] = cpu / r["requests"] * 1e6 if running else None
        r["dirty_at_end"] = left and left[1]
        # A ceiling stores nothing, so what is dirty is not its doing.
        r["peak_dirty"] = None if server.group == "ceiling" else peak
        refused = results.cheats(load, server, r, self.disk)
        if refused:
            raise servers.Failed(refused)
        return r

    def look_after(self, load, r):
        """After a run, its server still there; may add figures to @r."""

    @contextlib.contextmanager
    def place_for(self, load):
        """Where the image lives while @load runs; one place for all rows."""
        if not load.slow:
            yield
            return
        kept = self.image, self.disk, self.namespace
        with slow.SlowDisk(SOURCE, self.folder, load.slow) as place:
            self.image, self.disk = place.image, place.disk
            self.namespace = place.namespace
            try:
                yield
            finally:
                self.image, self.disk, self.namespace = kept

    def run_load(self, load, rows, progress, done):
        result = self.new_result(load, rows)
        done.append(result)  # First: an interrupted load is not lost.
        try:
            with self.place_for(load):
                self.run_rounds(load, rows, progress, result)
        except servers.Failed as e:  # There is no such place, for anyone.
            missing = isinstance(e, servers.Missing)
            for row in result.rows.values():
                row.trouble = row.trouble or (
                    "skipped: %s" % e if missing else str(e))
            progress.skip(load, len(rows) * (load.rounds or self.rounds))
        progress.clear()

    def run_rounds(self, load, rows, progress, result):
        rounds = load.rounds or self.rounds
        for n in range(rounds):
            if n and self.give_up and (
                    time.monotonic() + progress.expected() > self.give_up):
                self.note("short of time: not every load got all its rounds")
                progress.skip(load, len(rows) * (rounds - n))
                break
            # Who has failed will not do better the next time.
            left = [s for s in rows if not result.rows[s.name].trouble]
            progress.skip(load, len(rows) - len(left))
            if left and self.pool and load.pair:
                self._round_by_turns(load, left, n, progress, result)
            else:
                turn = n % len(rows)
                order = rows[turn:] + rows[:turn]
                self._round(load, [s for s in order if s in left], n,
                            progress, result)

    def _round_by_turns(self, load, rows, n, progress, result):
        progress.show(load, n, load.rounds or self.rounds, None)
        with progress.timed(load, len(rows)):
            found = paired.measure(self, load, rows, n)
        for name, figures in found.items():
            result.rows[name].take(n, figures)

    def _round(self, load, rows, n, progress, result):
        for server in rows:
            progress.show(load, n, load.rounds or self.rounds, server)
            with progress.timed(load, 1):
                try:
                    figures = self.measure(load, server)
                except servers.Failed as e:
                    figures = e
            result.rows[server.name].take(n, figures)
