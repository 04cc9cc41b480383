# SPDX-License-Identifier: BSD-3-Clause
"""Draws a power cut from a seed: the load, the server, the disk, the moment.

Every cut is another mixture ("swarm"): a load that has everything in it at
once would rarely have much of anything, and hide what only a pure load shows.
"""

import random

MODES = {"barrier": "flush", "osync": "always", "unsafe": "never"}
CUT_MODES = ["none"] * 3 + ["torn", "sector", "write", "prefix"] * 2 + ["all"]
# Loads for bugs that few of the other loads can show at all.
FOCUS = {
    "trim_zero_not_synced": {"zero": 60, "fua": 30},
    # A flush that finds everything clean, just after a slow one.
    "dirty_flag_cleared_after_sync": {
        "flush": 40, "fua": 0, "zero": 0, "trim": 0, "connections": 2,
        "depth": 2, "sectors": 4096},
    # What was lost must not be written again.
    "sticky_error_forgotten": {"flush": 20, "fua": 0, "sectors": 4096},
}
# EXT4_JOURNAL: Linux 6.18's ext4 with data=journal loses what was zeroed by
# fallocate and synced with success, if others write meanwhile; nbdkit's file
# plugin loses as much as we do (scripts/prove --all-failures --cuts 1
# --seed 2264 --mode barrier --stack ext4 --repeat 20), and with data=ordered
# nobody does.
#
# EXT4_HOLES: Linux 6.18's ext4 forgets, when the first write to new blocks has
# failed, that they are unwritten: written again and synced with success, they
# read as zeroes after a power cut, unless their pages were dropped from the
# cache in between.  ext4_forgets_a_hole_whose_write_failed.py shows it without
# any server.
LOAD_MS = 80  # About what the disk's delays may add up to in one load.


class Cut:
    """One cut: everything that follows from stack, mode and seed."""

    def __init__(self, stack, mode, seed, all_failures=False, bug=None):
        self.stack, self.mode, self.seed = stack, mode, seed
        self.rng = random.Random(f"{stack} {mode} {seed}")
        self.ops = 0  # Cut before that operation of the disk; 0: do not.
        self.bug = bug
        self.all_failures = all_failures
        self.fail = ""  # An operation of the disk that fails before the cut.
        self.disk = self.draw_disk()
        self.server = self.draw_server()
        self.image, self.fs_options = self.draw_image()
        self.load = self.draw_load()
        if self.fs_options and not all_failures:  # See EXT4_JOURNAL.
            self.load.update(zero=0, trim=0)
        self.draw_moment()

    def pick(self, *choices):
        return self.rng.choice(choices)

    def draw_disk(self):
        return {"seed": self.seed, "flush_ms": self.pick(0, 0, 0.5, 2),
                "flush_delay_ms": self.pick(0, 1, 4),
                "write_delay_ms": self.pick(0, 0.2, 1)}

    def draw_server(self):
        options = {"cache": self.mode}
        if self.pick(0, 0, 0, 1):
            options["direct"] = "true"
        if self.pick(0, 0, 1):
            options["io"] = self.pick("syscalls", "io_uring")
        if self.pick(0, 0, 1):
            options["dirty-limit"] = self.pick("0", "1M", "2M")
            options["evict"] = self.pick("true", "false")
        return options

    def draw_image(self):
        options = ""
        if self.stack == "ext4" and "direct" not in self.server:
            options = self.pick("", "", "", "data=journal")
        if self.stack in ("ext4", "xfs"):
            return self.pick("data.img", "hole.img"), options
        return "", options

    def draw_load(self):
        sectors = self.pick(8, 64, 256, 1024, 4096)
        load = {
            "seed": self.seed,
            "promise": MODES[self.mode],
            "sectors": sectors,
            "sectors_max": min(sectors, self.pick(1, 8, 8, 32, 128)),
            "connections": self.pick(1, 2, 4, 8),
            "depth": self.pick(1, 2, 4, 16),
            "write": 100,
            "zero": self.pick(0, 0, 5, 40),
            "trim": self.pick(0, 0, 5, 40),
            "flush": self.pick(2, 10, 30),
            "fua": self.pick(0, 3, 30),
            "base_zero": int(self.image == "hole.img"),
        }
        load.update(FOCUS.get(self.bug, {}))
        load["align"] = min(load["sectors_max"], self.pick(1, 8))
        load["requests"] = self.bound_requests(load, self.pick(100, 400, 1500))
        return load

    def bound_requests(self, load, wanted):
        """As many as take a bearable time."""
        disk = self.disk
        durable = load["fua"] / 100 + load["flush"] / 100
        if self.mode == "osync":
            durable = 1
        if self.mode == "unsafe":
            durable = 0
        each = 0.3 + disk["flush_ms"] + disk["flush_delay_ms"] / 2 + \
            disk["write_delay_ms"]
        together = min(load["connections"] * load["depth"], 8)
        most = LOAD_MS * together / each / max(durable, 0.01)
        return max(20, min(wanted, int(most)))

    def draw_moment(self):
        self.kind = self.pick(*CUT_MODES)
        requests = self.load["requests"]
        can_fail = self.mode != "unsafe" and self.pick(*[0] * 7, 1)
        if self.bug in FOCUS:
            can_fail = self.bug == "sticky_error_forgotten"
        if self.stack == "ext4" and self.image == "hole.img":
            can_fail = can_fail and self.all_failures  # See EXT4_HOLES.
        if can_fail:
            self.fail = self.draw_failure()
        if not can_fail and self.pick(0, 1):
            self.ops = self.rng.randint(1, self.pick(4, 20, 80))
        else:
            self.load["acks"] = self.rng.randint(1, requests)
        if self.fail:
            self.load["begin"] = self.fail
        elif self.ops:
            self.load["begin"] = (f"arm ops={self.ops} seed={self.seed} "
                                  f"mode={self.kind}")
        self.load["go_on"] = int(bool(can_fail))
        self.load["cut"] = f"cut seed={self.seed} mode={self.kind}"

    def draw_failure(self):
        """A write fails as in a bad block.  A failed flush loses the disk's
        cache, which a file system need not recover from, and of which Linux
        tells nobody but the caller: only with all_failures.
        """
        what = self.pick("writes", "flushes")
        if not self.all_failures or self.stack not in ("block", "file"):
            what = "writes"
        return f"fail {what}={self.rng.randint(1, self.pick(2, 10, 40))}"

    def describe(self):
        parts = [f"disk {self.disk}", f"server {self.server}",
                 f"load {self.load}"]
        if self.image:
            parts.append(f"image {self.image} {self.fs_options}".strip())
        return "\n    ".join(parts)
