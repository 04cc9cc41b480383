#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# A database in the guest commits in a loop and says so; the guest is killed at
# a random moment.  A fresh guest finds every commit that was reported, in a
# database and a file system that are whole.

from guesttest import *
import random

COMMIT = """
import sqlite3
db = sqlite3.connect("/mnt/test.db")
db.execute("pragma journal_mode=%s")
db.execute("pragma synchronous=extra")  # Also the end of its journal.
db.execute("create table if not exists t (n integer primary key, b blob)")
n = db.execute("select coalesce(max(n), 0) from t").fetchone()[0]
while True:
    n += 1
    db.execute("insert into t values (?, randomblob(700))", (n,))
    db.commit()
    print(n, flush=True)
"""
LOOK = """
import sqlite3
db = sqlite3.connect("/mnt/test.db")
print(*db.execute("pragma integrity_check").fetchone())
print(*db.execute("select count(*), max(n) from t").fetchone())
"""


def python(text):
    return "/usr/bin/python3 - <<'END'\n%s\nEND\n" % text


def test(t):
    mode = sys.argv[1]
    need_guest("uml")
    image = t.sparse("disk.img", 64 * MiB)
    s = t.server(image)
    seed = random.randrange(1 << 30)
    print("seed", seed)
    rnd = random.Random(seed)
    reported = 0
    for kill in range(2):
        wanted = reported + rnd.randrange(5, 60)
        g = Guest(t, "uml", "--socket", s.socket, run="set -e\n" +
                  ("mkfs.ext4 -q $DISK\n" if kill == 0 else "") +
                  "mount $DISK /mnt\n" + python(COMMIT % mode))
        for line in g.lines():
            reported = int(line)
            if reported >= wanted:
                break
        else:
            raise AssertionError("no commit %d: %s" % (wanted, g.err()))
        g.process.kill()
        # What it printed in its last moments is a promise as well.
        for line in g.lines():
            if line.isdigit():
                reported = max(reported, int(line))
        g.kill()
        print("killed after commit", reported)
    out = guest(t, "uml", "--socket", s.socket, run="set -e\n"
                "mount $DISK /mnt\n" + python(LOOK) + "umount /mnt\n"
                "e2fsck -fn $DISK >/dev/null 2>&1")
    s.stop()
    verdict, numbers = out.splitlines()
    count, last = map(int, numbers.split())
    assert verdict == "ok", out
    assert count == last, "commits are missing in between: " + out
    assert last >= reported, "commit %d was reported, %d is the last" % (
        reported, last)


main(test)
