#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""No trace instance, loop device, mount, process or file, however it ends."""

import os
import signal
import subprocess
import tempfile
import time

import chaintest
from chaintest import chain, fail

WAIT = "echo started; exec sleep 1000"


def started(folder):
    """A chain whose command runs and does not end."""
    process = subprocess.Popen(
        [chaintest.CHAIN, "--", WAIT], stdin=subprocess.DEVNULL, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        env=dict(os.environ, TMPDIR=folder))
    if process.stdout.readline() != "started\n":
        fail("the command did not start")
    if not chaintest.leftovers(process.pid, folder):
        fail("a running chain has nothing: this test looks in wrong places")
    return process


def main():
    chaintest.need()
    # Whoever runs tests in the background has it ignored, and so would we.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    with tempfile.TemporaryDirectory() as folder:
        try:
            try_all(folder)
        finally:
            chaintest.end_processes(folder)


def try_all(folder):
    os.environ["TMPDIR"] = folder
    for argv in (["--", "true"], ["--timeout", "0.2", "--", WAIT],
                 ["--plugin", "nonsense=1", "--", "true"]):
        process = subprocess.Popen(
            [chaintest.CHAIN, *argv], stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        process.wait(chaintest.PATIENCE)
        chaintest.await_nothing_left(process.pid, folder)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        process = started(folder)
        process.send_signal(number)
        status = process.wait(chaintest.PATIENCE)
        process.stdout.close()
        if status != 128 + number:
            fail("%s: status %d" % (number.name, status))
        chaintest.await_nothing_left(process.pid, folder)
    killed(folder)


def killed(folder):
    """SIGKILL: all but the files and the instance goes by itself; the next
    chain removes the instance."""
    process = started(folder)
    process.kill()
    process.wait(chaintest.PATIENCE)
    process.stdout.close()
    give_up = time.monotonic() + 30
    while True:
        left = [w for w in chaintest.leftovers(process.pid, folder)
                if w.split()[0] not in ("instance", "file")]
        if not left:
            break
        if time.monotonic() > give_up:
            fail("after SIGKILL: " + "; ".join(left))
        time.sleep(0.02)
    with tempfile.TemporaryDirectory() as other:
        os.environ["TMPDIR"] = other
        chain("--", "true").expect(0)
    left = [w for w in chaintest.leftovers(process.pid, folder)
            if w.startswith("instance")]
    if left:
        fail("the next chain did not remove " + "; ".join(left))


if __name__ == "__main__":
    main()
