#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# A test that is stopped or gets stuck leaves no process, loop device or file
# behind.  Guards ubdtest.py itself; runs it in a child with a private folder.

from ubdtest import *

STUCK = """
import sys
sys.path.insert(0, {here!r})
from ubdtest import *

@test
def gets_stuck(t):
    server = t.serve(t.image(), metrics=False)
    if is_root() and os.path.exists("/dev/loop-control"):
        try:
            print("loop", t.loop(t.image(name="l.img")).path)
        except Skip:
            pass
    h = server.connect()
    os.kill(server.pid, signal.SIGSTOP)
    print("server", server.pid, flush=True)
    h.flush()

main()
"""


def leaves_nothing(t, end, **environment):
    place = t.path("private")
    os.mkdir(place)
    script = t.path("stuck.py")
    with open(script, "w", encoding="ascii") as f:
        here = os.path.dirname(os.path.abspath(__file__))
        f.write(STUCK.format(here=here))
    child = t.start([sys.executable, script], stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    env={**os.environ, "UBD_TMPDIR": place,
                         "PYTHONDONTWRITEBYTECODE": "1", **environment})
    device = None
    for line in child.stdout:
        words = line.decode().split()
        if words[0] == "loop":
            device = words[1]
        if words[0] == "server":
            fd = t.own_pid(int(words[1]))
            break
    else:
        raise Failure("the child did not start a server")
    end(child)
    child.stdout.read()
    equal(child.wait(PATIENCE), 1, "exit status of a stuck test")
    check(pidfd_ended(fd, 0), "the server is still there")
    equal(os.listdir(place), [], "files left behind")
    if device:
        check(place not in t.run(["losetup", "--list", "--noheadings"]),
              f"{device} is still attached")
    os.rmdir(place)


@test
def a_stopped_test_leaves_nothing_behind(t):
    for number in (signal.SIGTERM, signal.SIGINT):
        leaves_nothing(t, lambda child: child.send_signal(number))


@test
def a_daemon_that_no_test_knows_of_is_ended(t):
    script = t.path("forgets.py")
    with open(script, "w", encoding="ascii") as f:
        here = os.path.dirname(os.path.abspath(__file__))
        f.write(f"""
import sys
sys.path.insert(0, {here!r})
from ubdtest import *

@test
def forgets_a_daemon(t):
    pidfile = {t.path("pid")!r}
    t.run(["nbdkit", "-U", t.path("s"), "-P", pidfile, plugin(), t.image()])
    wait_for(lambda: os.path.exists(pidfile) and read_file(pidfile).strip(),
             "the daemon")
    print("server", read_file(pidfile).decode())

main()
""")
    place = t.path("private")
    os.mkdir(place)
    out = t.run([sys.executable, script],
                env={**os.environ, "UBD_TMPDIR": place,
                     "PYTHONDONTWRITEBYTECODE": "1"})
    pid = re.search(r"server (\d+)", out)[1]
    check(not os.path.exists(f"/proc/{pid}"), "the daemon is still there")
    equal(os.listdir(place), [], "files left behind")


@test
def a_stuck_test_ends_at_its_deadline_and_leaves_nothing_behind(t):
    leaves_nothing(t, lambda child: None, UBD_DEADLINE="1")


main()
