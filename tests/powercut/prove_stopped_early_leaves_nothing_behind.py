#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""scripts/prove that is stopped while its disks, loop devices, mounts and
servers are up takes all of them with it.
"""

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

import rig

PATIENCE_S = 300
MARK = f"UBD_TEST_MARK={os.getpid()}"  # In the environment of all it starts.


def read(path):
    try:
        with open(path, "rb") as f:
            return f.read().decode(errors="replace")
    except OSError:  # It has just gone.
        return ""


def processes():
    """{pid: name} of those with the mark; a zombie has no environment."""
    return {int(pid): read(f"/proc/{pid}/comm").strip()
            for pid in os.listdir("/proc") if pid.isdigit()
            and MARK in read(f"/proc/{pid}/environ").split("\0")}


def is_attached(use):
    name, number = use
    return os.path.exists(f"/sys/block/{name}/loop") and (
        read(f"/sys/block/{name}/diskseq").strip() == number)


def loops(pids):
    """The loop devices that they have open, each with the number that no other
    use of it has.
    """
    found = set()
    for pid in pids:
        try:
            links = [os.readlink(f"/proc/{pid}/fd/{fd}")
                     for fd in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue
        for name in re.findall(r"^/dev/(loop\d+)$", "\n".join(links), re.M):
            found.add((name, read(f"/sys/block/{name}/diskseq").strip()))
    return {use for use in found if is_attached(use)}


def wait_for(predicate, what):
    until = time.monotonic() + PATIENCE_S
    while not predicate():
        assert time.monotonic() < until, f"waited in vain for {what()}"
        time.sleep(0.01)


def stop_it(number, log):
    prove = os.path.join(os.environ["UBD_SRC"], "scripts", "prove")
    name, _, value = MARK.partition("=")
    child = subprocess.Popen([prove, "--cuts", "1000000", "--stack", "ext4"],
                             env={**os.environ, name: value},
                             stdout=log, stderr=log)
    used = set()

    def is_up():
        found = processes()
        used.update(loops(found))
        assert child.poll() is None, f"prove ended: {child.returncode}"
        return used and "nbdkit" in found.values()

    try:
        wait_for(is_up, lambda: f"a server on a disk: {used}, {processes()}")
        child.send_signal(number)
        assert child.wait(PATIENCE_S) == 128 + number, child.returncode
        wait_for(lambda: not processes(), processes)
        wait_for(lambda: not any(map(is_attached, used)), lambda: used)
    finally:
        for pid in processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        child.wait()


def main():
    rig.check_host(["ext4"])
    with tempfile.TemporaryFile() as log:
        try:
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
                stop_it(number, log)
        except BaseException:
            log.seek(0)
            sys.stdout.write(log.read().decode(errors="replace"))
            raise


main()
