# SPDX-License-Identifier: BSD-3-Clause
"""Cut the power, thousands of times, and look for what should be there.

Each cut runs a random load on a real nbdkit with the plugin, over a real host
file system, over a disk model with a volatile write cache; the power goes at a
random operation of the disk or just after a random acknowledgement; then the
host boots again and every sector is compared with what was promised
(tests/powercut/history.h).  In the mode unsafe losses are expected, and shown.

A seed decides the load and the moment, not what the kernel's scheduler does
with them: if a failure does not come back with the command that is printed
for it, --repeat runs the same cut many times.

Exit status: 0 if nothing was lost (with --mutant: if something was), 1 if not.
"""

import argparse
import collections
import multiprocessing
import os
import signal
import sys
import time
import traceback

import cuts
import guests
import rig

MUTANTS = [
    "flush_ignored", "fua_ignored", "sync_file_range_trusted",
    "reply_before_sync", "joins_running_sync", "dirty_flag_cleared_after_sync",
    "trim_zero_not_synced", "sticky_error_forgotten",
]
FULL = 5000


class Parser(argparse.ArgumentParser):
    def error(self, message):  # One line instead of the whole usage.
        self.exit(2, f"scripts/prove: {message} (try --help)\n")


def parse_args(argv=None):
    p = Parser(
        prog="scripts/prove", allow_abbrev=False, description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--cuts", type=int, default=360, metavar="N",
                   help="how many (default: 360)")
    p.add_argument("--full", action="store_true",
                   help=f"the same as --cuts {FULL}")
    p.add_argument("--seed", type=int, default=1, metavar="S",
                   help="of the first cut; the next has S + 1 (default: 1)")
    p.add_argument("--guests", type=int, metavar="N",
                   help="so many cuts under whole guests (User Mode Linux)"
                   " instead: tests/powercut/guests.py")
    p.add_argument("--mode", default="all", choices=[*cuts.MODES, "all"],
                   help="cache mode (default: all)")
    p.add_argument("--stack", default="all", metavar="K",
                   help="what is under the image: "
                   + ", ".join(cuts.STACKS) + "; with --guests the guest's"
                   " file system: " + ", ".join(guests.STACKS)
                   + " (default: all)")
    p.add_argument("--mutant", choices=MUTANTS, metavar="NAME",
                   help="a server with that bug, which must be caught: "
                   + ", ".join(MUTANTS))
    p.add_argument("--go-on", action="store_true",
                   help="with --mutant: do not stop when it is caught")
    p.add_argument("--all-failures", action="store_true",
                   help="also failures that no server can make good on this"
                   " kernel: of the disk's flushes, which lose its cache"
                   " (block, file), of writes to holes (ext4); and ext4's"
                   " own losses with data=journal")
    p.add_argument("--repeat", type=int, default=1, metavar="N",
                   help="run each cut so many times (default: 1)")
    p.add_argument("--jobs", type=int, metavar="N",
                   default=2 * len(os.sched_getaffinity(0)),
                   help="cuts at a time (default: two per processor)")
    args = p.parse_args(argv)
    if args.full:
        args.cuts = FULL
    for name in ("cuts", "seed", "repeat", "jobs"):
        if getattr(args, name) < 1:
            p.error(f"--{name} {getattr(args, name)}: expected 1 or more")
    choose_campaign(p, args)
    if args.mutant and args.mode == "all":
        args.modes = ["barrier"]
    return args


def choose_campaign(p, args):
    """args.campaign, and its share of what was asked for."""
    args.campaign = cuts if args.guests is None else guests
    if args.guests is not None:
        args.cuts = args.guests
        if args.guests < 1:
            p.error(f"--guests {args.guests}: expected 1 or more")
    for name, given, known in (
            ("stack", args.stack, args.campaign.STACKS),
            ("mode", args.mode, args.campaign.MODES)):
        if given not in (*known, "all"):
            p.error(f"--{name} {given}: expected all or one of "
                    + ", ".join(known))
        setattr(args, name + "s", known if given == "all" else [given])


def chosen(args, i):
    """Cut number @i: its stack, mode and seed."""
    n = i // args.repeat
    stack = args.stacks[n % len(args.stacks)]
    mode = args.modes[n // len(args.stacks) % len(args.modes)]
    return stack, mode, args.seed + n


def command(args, stack, mode, seed):
    mutant = f" --mutant {args.mutant}" if args.mutant else ""
    failures = " --all-failures" if args.all_failures else ""
    what = "cuts" if args.campaign is cuts else "guests"
    return (f"scripts/prove --{what} 1 --seed {seed} --mode {mode}"
            f" --stack {stack}{mutant}{failures}")


# ---- One cut ----

class Worker:
    """Runs its share of the cuts, on disks that it keeps."""

    def __init__(self, args, pristine, number):
        self.args, self.pristine, self.number = args, pristine, number
        self.disks = {}

    def disk(self, stack):
        if stack not in self.disks:
            self.disks[stack] = rig.Rig(self.pristine[stack],
                                        f"{self.number}-{stack}")
        return self.disks[stack]

    def run(self, i):
        stack, mode, seed = chosen(self.args, i)
        campaign = self.args.campaign
        cut = campaign.make_cut(stack, mode, seed, self.args)
        try:
            result = campaign.run_cut(cut, self.disk(stack), self.args.mutant)
        except (rig.Broken, OSError) as e:
            result = {"broken": str(e)}
            traceback.print_exc()
            self.disks.pop(stack).stop()
        result.update(i=i, stack=stack, mode=mode, seed=seed, cuts=1)
        return result

    def stop(self):
        for disk in self.disks.values():
            disk.stop()


def work(args, pristine, number, todo, results):
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    rig.own_mounts()
    worker = Worker(args, pristine, number)
    try:
        while True:
            with todo.get_lock():
                i = todo.value
                todo.value += 1
            if i >= args.cuts * args.repeat:
                break
            results.put(worker.run(i))
    except BaseException:
        results.put({"broken": traceback.format_exc()})
        raise
    finally:
        worker.stop()
        results.put(None)


# ---- All of them ----

class Report:
    """What was found so far."""

    def __init__(self, args):
        self.args = args
        self.columns = ["cuts", *args.campaign.COLUMNS, "losses"]
        self.start = time.monotonic()
        self.rows = collections.defaultdict(collections.Counter)
        self.bad = []

    def add(self, result):
        if "broken" not in result:
            row = self.rows[result["mode"], result["stack"]]
            row.update({c: result[c] for c in self.columns})
            if not result["losses"] or result["mode"] == "unsafe":
                return
        self.bad.append(result)
        if not self.args.mutant or "broken" in result:
            self.tell(result)

    def tell(self, result):
        stack, mode, seed = (result.get(k) for k in ("stack", "mode", "seed"))
        if "broken" in result:
            print(f"the rig failed ({mode} on {stack}, seed {seed}): "
                  f"{result['broken']}")
        else:
            print(f"LOST: {mode} on {stack}, seed {seed}: "
                  f"{result['losses']} losses\n{result['said']}\n"
                  f"    {self.describe(stack, mode, seed)}")
        if stack:
            print("  again: " + command(self.args, stack, mode, seed),
                  flush=True)

    def describe(self, *which):
        return self.args.campaign.make_cut(*which, self.args).describe()

    def progress(self):
        done = sum(row["cuts"] for row in self.rows.values())
        total = self.args.cuts * self.args.repeat
        if done and (done % max(1, total // 10) == 0):
            print(f"{done} of {total} cuts, "
                  f"{time.monotonic() - self.start:.1f} s", flush=True)

    def table(self):
        columns = self.columns
        lines = [["mode", "stack", *columns]]
        total = collections.Counter()
        for (mode, stack), row in sorted(self.rows.items()):
            losses = str(row["losses"])
            if mode == "unsafe":
                losses += " (expected)"
            else:
                total.update(row)
            lines.append([mode, stack, *(str(row[c]) for c in columns[:-1]),
                          losses])
        lines.append(["promised", "", *(str(total[c]) for c in columns)])
        widths = [max(len(line[i]) for line in lines)
                  for i in range(len(lines[0]))]
        for line in lines:
            print("  ".join(f"{cell:<{w}}" if n < 2 else f"{cell:>{w}}"
                            for n, (cell, w) in enumerate(zip(line, widths)))
                  .rstrip())


def run_all(args):
    pristine = {stack: args.campaign.make_pristine(stack)
                for stack in args.stacks}
    todo = multiprocessing.Value("i", 0)
    results = multiprocessing.SimpleQueue()
    jobs = min(args.jobs, args.cuts * args.repeat)
    workers = [multiprocessing.Process(
        target=work, args=(args, pristine, n, todo, results))
        for n in range(jobs)]
    report = Report(args)
    for w in workers:
        w.start()
    while jobs:
        result = results.get()
        if result is None:
            jobs -= 1
            continue
        report.add(result)
        report.progress()
        if report.bad and args.mutant and not args.go_on:
            todo.value = 1 << 30  # It is caught; the others may end theirs.
    for w in workers:
        w.join()
    return report


def verdict(args, report):
    done = sum(row["cuts"] for row in report.rows.values())
    seconds = time.monotonic() - report.start
    if any("broken" in r for r in report.bad):
        print("prove: the rig failed; nothing is proven")
        return 1
    if args.mutant and report.bad:
        first = min(report.bad, key=lambda result: result["i"])
        print(f"mutant {args.mutant}: caught in {len(report.bad)} of {done} "
              f"cuts, first at cut {first['i'] + 1}: "
              + command(args, first["stack"], first["mode"], first["seed"]))
        return 0
    if args.mutant:
        print(f"mutant {args.mutant}: survived {done} cuts")
        return 1
    print(f"{done} cuts from seed {args.seed} in {seconds:.1f} s: "
          f"{len(report.bad)} of them lost something")
    return 1 if report.bad or not done else 0


def main():
    args = parse_args()
    rig.check_host(args.stacks, args.campaign.PROGRAMS)
    rig.enter_namespace()
    report = run_all(args)
    report.table()
    return verdict(args, report)


if __name__ == "__main__":
    sys.exit(main())
