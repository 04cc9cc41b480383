# SPDX-License-Identifier: BSD-3-Clause
"""The runs: bench's, with what our tables say in addition."""

import contextlib
import os
import time

from benchlib import host, loads, runner, servers
from . import guests, tables


class Client(loads.Client):
    """Also the client that needs no server."""

    def run(self, load, running, image, on_start):
        if running:
            return super().run(load, running, image, on_start)
        return self.run_program("mmapload", image.path, load, load.params,
                                image, on_start)


class Bench(runner.Bench):
    """@place: the folder, on the disk to measure, for images."""

    def __init__(self, args, disk, folder, place):
        super().__init__(args, None, disk, folder)
        self.client = Client(runner.SOURCE, self.client.build, folder,
                             self.client.milliseconds)
        self.new_result = tables.Result
        self.place, self.own_disk = place, disk

    def measure(self, load, server):
        if load.number == 2:
            return guests.measure(self, load, server)
        return super().measure(load, server)

    @contextlib.contextmanager
    def place_for(self, load):
        if load.number == 2:
            with load.place(self) as made:
                self.image, self.disk = made.image, made.disk
                self.namespace = made.namespace
                try:
                    yield
                finally:
                    self.image, self.disk = None, self.own_disk
                    self.namespace = None
            return
        size = load.params.get("total") or load.params["area"]
        self.need_room(size)
        self.image = host.Image(os.path.join(self.place, "seeds.img"), size)
        try:
            yield
        finally:
            self.image.close()
            self.image = None

    def look_after(self, load, r):
        """What is not on the disk although the flush was answered."""
        r["work_seconds"] = r["seconds"] - r["flush_seconds"]
        dirty = r.get("dirty_at_flush")
        if dirty and dirty > tables.MIB and r["flush_seconds"]:
            r["flush_mb_per_s"] = dirty / 1e6 / r["flush_seconds"]
        start = time.monotonic()
        os.fdatasync(self.image.fd)
        r["host_sync_seconds"] = time.monotonic() - start

    def need_room(self, size):
        free = os.statvfs(self.place)
        if free.f_bavail * free.f_frsize < size + (256 << 20):
            raise servers.Failed("%s: too little room for images of %d MiB"
                                 % (self.place, size >> 20))
