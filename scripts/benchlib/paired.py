# SPDX-License-Identifier: BSD-3-Clause
"""Measures rates finer than one whole run after the other can: all servers of
a load at once, each on an image of its own, asked by turns for a few
milliseconds.  Whatever else the machine does lasts longer than a turn.
"""

import contextlib
import json
import math
import os
import statistics

from . import host, results, servers
from .servers import Failed

SLICE_MS = 8
# Where connections share syncs: some fifty turns of each.  In 8 ms it is three,
# and it is measured how the first sync of a slice finds company and the last
# one has none.
SHARED_SLICE_MS = 100
AREA = 256 * host.MIB  # Of each image: as many as there are servers.
START = 0.3  # Seconds for one server to start and to have its image warm.


def effects(cycles):
    """The rate of each server without what hit all of a cycle alike.

    @cycles: for each cycle the rates of all servers.  What a rate owes to its
    cycle is the mean of the cycle's logarithms; what is left of it is the
    server's, and its median over the cycles counts.
    """
    logs = [[math.log(max(rate, 1e-9)) for rate in cycle] for cycle in cycles]
    means = [statistics.fmean(cycle) for cycle in logs]
    middle = statistics.median(means)
    return [math.exp(middle + statistics.median(
        cycle[i] - mean for cycle, mean in zip(logs, means)))
        for i in range(len(cycles[0]))]


class Pool:
    """Images, one for each server of a round, and a folder for each."""

    def __init__(self, image_folder, folder, size):
        self.image_folder, self.folder = image_folder, folder
        self.size = min(AREA, size)
        self.images = []

    def place(self, number):
        """(image, folder) number @number, made if it is not there yet."""
        while len(self.images) <= number:
            n = len(self.images)
            free = os.statvfs(self.image_folder)
            if free.f_bavail * free.f_frsize < self.size + (256 << 20):
                raise Failed("%s: too little room for %d images of %d MiB" % (
                    self.image_folder, number + 1, self.size >> 20))
            self.images.append(host.Image(
                os.path.join(self.image_folder, "pair%d.img" % n), self.size))
            os.mkdir(os.path.join(self.folder, "p%d" % n))
        return self.images[number], os.path.join(self.folder, "p%d" % number)

    def close(self):
        for image in self.images:
            image.close()


def slice_ms(load):
    shared = load.pair in ("fsync", "fua") and load.jobs > 1
    return SHARED_SLICE_MS if shared else SLICE_MS


def _words(load, disk, cycles, size):
    params = {"area": min(load.area or size, size), "conns": load.jobs,
              "depth": load.depth, "cycles": cycles, "ms": slice_ms(load)}
    return [load.pair] + ["%s=%d" % item for item in params.items()] + [
        "stat=" + path for path in disk.stats]


def _start(bench, load, row, place):
    image, folder = place
    trouble = image.settle(0 if row.direct else load.warm and image.size)
    if trouble:
        bench.note(trouble)
    return servers.Running(row, image, folder, bench.plugin)


def _figures(load, running, cpu, out, i):
    """What whole runs say too (runner.Bench.measure), of server @i."""
    n = out["requests"][i]
    if not n:
        raise Failed("no request was answered")
    left = running.image.cache()
    r = {"requests": n * (2 if load.pair == "fsync" else 1),
         "writes": n if load.pair in ("write", "fsync", "fua") else 0,
         "flushes": n if load.pair in ("fsync", "flush") else 0,
         "fua": n if load.pair == "fua" else 0,
         "slices": len(out["cycles"]), "dirty_at_end": left and left[1],
         "seconds": len(out["cycles"]) * slice_ms(load) / 1000}
    for field in ("host_flushes", "host_writes", "host_bytes"):
        r[field] = out[field][i]
    r["cpu_us"] = (running.cpu_seconds() - cpu) / r["requests"] * 1e6
    return r


def measure(bench, load, rows, number):
    """One round: {name: figures or Failed}.  @number turns the images, so
    that no server always has the same one.
    """
    found, running, cpu = {}, [], []
    cycles = max(10, int(bench.seconds * 1000 / slice_ms(load)))
    program = bench.client.program("nbdpair")
    with contextlib.ExitStack() as stack:
        for i, row in enumerate(rows):
            place = bench.pool.place((i + number) % len(rows))
            try:
                server = _start(bench, load, row, place)
            except Failed as e:
                found[row.name] = e
                continue
            stack.callback(server.stop)
            server.image = place[0]
            running.append(server)
        if not running:
            return found
        cpu = [s.cpu_seconds() for s in running]
        out = json.loads(host.read_text(bench.client.run_words(
            [program, *_words(load, bench.disk, cycles, bench.pool.size),
             *(s.uri for s in running)],
            cycles * len(running) * slice_ms(load) / 1000)))
        for i, (s, value) in enumerate(zip(running, effects(out["cycles"]))):
            try:
                r = _figures(load, s, cpu[i], out, i)
                refused = results.cheats(load, s.server, r, bench.disk)
                if refused:
                    raise Failed(refused)
                found[s.server.name] = dict(r, value=value)
            except Failed as e:
                found[s.server.name] = e
    return found
