# SPDX-License-Identifier: BSD-3-Clause
"""Power cuts under a whole guest: User Mode Linux (scripts/guest) with a file
system on the served disk, in which three programs commit as fast as they can
and report each commit: one appends and syncs, two use sqlite, with a write-
ahead log and with a rollback journal.

The power of the host goes after a report or at an operation of the disk.  A
fresh guest mounts what is left: every commit that was reported is there, both
databases are whole, and so is the file system after its own recovery.
"""

import os
import random
import select
import subprocess
import time

import rig

MiB = rig.MiB
HOST = "ext4"  # Under the image.
HOST_SIZE = 256 * MiB
IMAGE = "disk.img"
MODES = ["barrier", "osync"]
COLUMNS = ["operations", "commits"]
PROGRAMS = ("linux.uml", "busybox", "qemu-storage-daemon", "mkfs.xfs",
            "mkfs.btrfs")
PATIENCE_S = 240

# What makes it, how it is mounted, what says that it is whole, its size.
FILE_SYSTEMS = {
    "ext4": (["mkfs.ext4", "-q", "-F"], "-t ext4", "e2fsck -fn", 64 * MiB),
    "ext4-journal": (["mkfs.ext4", "-q", "-F"], "-t ext4 -o data=journal",
                     "e2fsck -fn", 64 * MiB),
    "xfs": (["mkfs.xfs", "-q", "-f"], "-t xfs", "xfs_repair -n", 64 * MiB),
    "btrfs": (["mkfs.btrfs", "-q", "-f"], "-t btrfs",
              "btrfs check --readonly", 128 * MiB),
}
STACKS = list(FILE_SYSTEMS)

COMMIT = r'''
import os
import sqlite3

def report(kind, n):
    os.write(1, b"%s %d\n" % (kind, n))

def append():
    fd = os.open("/mnt/log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    folder = os.open("/mnt", os.O_RDONLY)
    os.fsync(folder)
    n = 0
    while True:
        n += 1
        os.write(fd, b"%d %s\n" % (n, b"x" * (n * 37 % 5000)))
        os.fsync(fd)
        report(b"append", n)

def database(mode):
    db = sqlite3.connect("/mnt/%s.db" % mode)
    db.execute("pragma journal_mode=%s" % mode)
    db.execute("pragma synchronous=extra")  # Also the end of its journal.
    db.execute("create table t (n integer primary key, b blob)")
    n = 0
    while True:
        n += 1
        db.execute("insert into t values (?, randomblob(?))", (n, n * 37 % 3000))
        db.commit()
        report(mode.encode(), n)

for work in (append,), (database, "wal"), (database, "delete"):
    if os.fork() == 0:
        try:
            work[0](*work[1:])
        finally:
            os._exit(0)  # The disk has gone.
for _ in range(3):
    os.wait()
'''

LOOK = r'''
import os
import sqlite3

def appended():
    n = 0
    if not os.path.exists("/mnt/log"):
        return "no_file", n
    for line in open("/mnt/log", "rb"):
        if line != b"%d %s\n" % (n + 1, b"x" * ((n + 1) * 37 % 5000)):
            break
        n += 1
    return "ok", n

def committed(mode):
    db = sqlite3.connect("/mnt/%s.db" % mode)
    verdict, = db.execute("pragma integrity_check").fetchone()
    if not db.execute("select 1 from sqlite_master").fetchone():
        return verdict, 0
    count, last = db.execute("select count(*), max(n) from t").fetchone()
    if count != (last or 0):
        verdict = "%d of %d rows" % (count, last)
    return verdict.replace(" ", "_").replace("\n", "_"), count

print("found append", *appended())
print("found wal", *committed("wal"))
print("found delete", *committed("delete"))
'''


def python(text):
    return "/usr/bin/python3 - <<'END'\n%s\nEND\n" % text


class Pristine(rig.Pristine):
    """A host's disk with one image: a guest's fresh file system."""

    def __init__(self, kind):
        self.kind = kind
        super().__init__(HOST, HOST_SIZE)

    def make_images(self, folder):
        make, _, _, size = FILE_SYSTEMS[self.kind]
        path = os.path.join(folder, IMAGE)
        with open(path, "wb") as f:
            f.truncate(size)
        rig.run(*make, path, env={**os.environ, **rig.MKFS_ENV})


class Cut:
    def __init__(self, kind, mode, seed):
        self.kind, self.mode, self.seed = kind, mode, seed
        rng = random.Random(f"guest {kind} {mode} {seed}")
        self.cut = "seed=%d mode=%s" % (seed, rng.choice(
            ["none", "none", "torn", "sector", "write", "prefix"]))
        self.disk = "flush_delay_ms=%g write_delay_ms=%g seed=%d" % (
            rng.choice([0, 1, 4]), rng.choice([0, 0.2, 1]), seed)
        self.direct = rng.choice([False, False, True])
        self.ops = self.reports = 0
        if rng.choice([False, True]):
            self.ops = rng.randint(1, rng.choice([50, 300]))
        else:
            self.reports = rng.randint(1, rng.choice([10, 80]))

    def describe(self):
        when = f"operation {self.ops}" if self.ops else \
            f"report {self.reports}"
        return f"disk {self.disk}, cut {self.cut} at {when}" + \
            (", direct=true" if self.direct else "")


def make_pristine(stack):
    return Pristine(stack)


def make_cut(stack, mode, seed, _args):
    return Cut(stack, mode, seed)


class Guest:
    """scripts/guest on a served socket, its lines and its end."""

    def __init__(self, folder, socket, words):
        source = os.environ.get("UBD_SRC") or os.path.join(
            os.path.dirname(os.path.abspath(__file__)), "..", "..")
        self.err_path = os.path.join(folder, "guest.err")
        self.until = time.monotonic() + PATIENCE_S
        with open(self.err_path, "wb") as err:
            # pylint: disable=consider-using-with
            self.process = subprocess.Popen(
                ["/usr/bin/python3", os.path.join(source, "scripts", "guest"),
                 "uml", "--socket", socket, "--timeout", str(PATIENCE_S),
                 "--run", words],
                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=err)
        self.rest = b""

    def lines(self):
        """As they come, until it ends."""
        fd = self.process.stdout.fileno()
        while True:
            left = self.until - time.monotonic()
            if left <= 0 or not select.select([fd], [], [], left)[0]:
                raise rig.Broken("the guest's time is up: " + self.messages())
            data = os.read(fd, 65536)
            if not data:
                return
            *lines, self.rest = (self.rest + data).split(b"\n")
            for line in lines:
                yield line.decode(errors="replace").strip()

    def messages(self):
        with open(self.err_path, errors="replace", encoding="utf-8") as f:
            return f.read().strip()[-2000:]

    def kill(self):
        self.process.kill()
        self.process.wait()


def start(cut, disk, mutant, words, restore):
    """A host, a server and a guest: (server, guest)."""
    image = disk.boot(IMAGE, restore=restore)
    options = [f"cache={cut.mode}"]
    if cut.direct:
        options.append("direct=true")
    server = rig.Server(disk.folder, image, options, mutant)
    try:
        server.wait_until_it_listens()
        return server, Guest(disk.folder, server.socket, words)
    except BaseException:
        server.kill()
        raise


def commit_until_the_cut(cut, disk, mutant):
    """{who: last commit that was reported}, operations of the disk."""
    _, mount, _, _ = FILE_SYSTEMS[cut.kind]
    server, guest = start(cut, disk, mutant,
                          f"mount {mount} $DISK /mnt\n" + python(COMMIT), True)
    reported = {"append": 0, "wal": 0, "delete": 0}
    seen, model = 0, disk.model
    try:
        before = model.ask("stats")["ops"]
        for line in guest.lines():
            who, _, n = line.partition(" ")
            if who not in reported or not n.isdigit():
                continue
            # A real guest dies with its host.  One that lives on among errors
            # may be told nonsense by its own kernel: jbd2 (6.1) lets an fsync
            # succeed whose commit has failed in another one's name.
            if model.ask("stats")["power"] == "off":
                break
            reported[who] = int(n)
            seen += 1
            if seen == 1:
                model.ask("set " + cut.disk)
                if cut.ops:
                    model.ask(f"arm ops={cut.ops} {cut.cut}")
            if seen == cut.reports:
                model.ask("cut " + cut.cut)
        if not seen:
            raise rig.Broken("the guest reported nothing: " +
                             guest.messages())
        return reported, model.ask("stats")["ops"] - before
    finally:
        guest.kill()
        server.kill()


def look(cut, disk):
    """{who: (verdict, commits)}, and what the checker said if not clean."""
    _, mount, check, _ = FILE_SYSTEMS[cut.kind]
    words = (f"mount {mount} $DISK /mnt || exit 1\n" + python(LOOK) +
             "umount /mnt\n"
             f"if {check} $DISK >/tmp/log 2>&1; then echo whole\n"
             "else cat /tmp/log; fi\n")
    server, guest = start(cut, disk, None, words, False)
    found, said = {}, []
    try:
        for line in guest.lines():
            parts = line.split()
            if parts[:1] == ["found"]:
                found[parts[1]] = parts[2], int(parts[3])
            elif line != "whole":
                said.append(line)
            else:
                found["file system"] = "ok", 0
    finally:
        guest.kill()
        server.kill()
    return found, "\n".join(said) + guest.messages()


def run_cut(cut, disk, mutant):
    reported, operations = commit_until_the_cut(cut, disk, mutant)
    disk.down()
    disk.heal()
    found, said = look(cut, disk)
    disk.down()
    wrong = []
    for who, n in {**reported, "file system": 0}.items():
        verdict, there = found.get(who, ("was not found", 0))
        if n == 0 and verdict == "no_file":
            continue
        if verdict != "ok" or there < n:
            wrong.append(f"  {who}: {verdict}; {n} commits were reported,"
                         f" {there} are there")
    return {"operations": operations, "commits": sum(reported.values()),
            "losses": len(wrong), "said": "\n".join(wrong + [said])}
