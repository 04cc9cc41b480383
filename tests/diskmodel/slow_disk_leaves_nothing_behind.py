# SPDX-License-Identifier: BSD-3-Clause
"""scripts/slow-disk passes the command's exit status on and takes everything
down: when the command succeeds, fails, cannot be run, leaves processes that
hold its files, or is interrupted, and when it is killed itself.
"""

import contextlib
import os
import signal
import subprocess
import time

import slowdisktest

PATIENCE_S = 300

# Says where it is and that it runs; the caller ends it.  The sleeper has a
# session of its own and a file open, as a daemon would have.
STUBBORN = """
cd "$UBD_SLOW_DISK"
setsid sleep 1000 > held 2> /dev/null < /dev/null &
echo "$UBD_SLOW_CONTROL $!"
exec sleep 1000 > /dev/null
"""


@contextlib.contextmanager
def started(*argv):
    process = subprocess.Popen(
        [slowdisktest.SLOW_DISK, "--size", "64M", *argv],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        start_new_session=True)
    try:
        yield process
    finally:
        if process.poll() is None:  # The test has failed.
            process.terminate()
        process.wait(PATIENCE_S)
        process.stdout.close()


def processes_with(text):
    """Processes that have @text in their command line; the model does."""
    found = []
    for name in os.listdir("/proc"):
        try:
            if name.isdigit():
                with open(f"/proc/{name}/cmdline", "rb") as f:
                    if text.encode() in f.read():
                        found.append(int(name))
        except OSError:
            pass  # Gone meanwhile.
    return found


def leftovers(folder):
    found = [f"process {pid}" for pid in processes_with(folder)]
    for name in os.listdir("/sys/block"):
        try:
            with open(f"/sys/block/{name}/loop/backing_file",
                      encoding="utf-8") as f:
                if f.read().startswith(folder):
                    found.append(name)
        except OSError:
            pass  # Not a loop device, or not attached.
    with open("/proc/mounts", encoding="utf-8") as f:
        found += [line for line in f if folder in line]
    return found


def is_running(pid):
    """One that has ended and waits for init to notice does not."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def check_gone(what, folder, pids=()):
    found = leftovers(folder)
    assert not found, f"{what}: {found}"
    assert not os.path.exists(folder), f"{what}: {folder}"
    for pid in pids:
        assert not is_running(pid), f"{what}: process {pid}"


def ends_by_itself(fs, script, status):
    with started("--fs", fs, "--", "sh", "-c",
                 f'echo "$UBD_SLOW_CONTROL"; {script}') as process:
        folder = os.path.dirname(process.stdout.readline().strip())
        process.communicate(timeout=PATIENCE_S)
        assert folder.startswith("/"), folder
        assert process.returncode == status, f"{script}: {process.returncode}"
        check_gone(script, folder)


def is_interrupted(signum, status, to_group):
    with started("--fs", "ext4", "--", "sh", "-c", STUBBORN) as process:
        control, sleeper = process.stdout.readline().split()
        if to_group:
            os.killpg(process.pid, signum)
        else:
            os.kill(process.pid, signum)
        process.communicate(timeout=PATIENCE_S)
        assert process.returncode == status, f"{signum}: {process.returncode}"
        check_gone(f"signal {signum}", os.path.dirname(control),
                   [int(sleeper)])


def is_killed():
    """Nobody is left to tidy up, so what must go goes by itself: the model, the
    device and the mounts.  A sleeper that left its session would keep the
    namespace, so there is none here; the empty folder stays.
    """
    with started("--fs", "ext4", "--", "sh", "-c",
                 'echo "$UBD_SLOW_CONTROL"; exec sleep 1000 > /dev/null'
                 ) as process:
        folder = os.path.dirname(process.stdout.readline().strip())
        assert processes_with(folder)
        process.kill()
        process.wait(PATIENCE_S)
        deadline = time.monotonic() + PATIENCE_S
        while leftovers(folder):
            assert time.monotonic() < deadline, leftovers(folder)
            os.sched_yield()
        os.rmdir(folder)


def cannot_be_run():
    for argv, status in ((["/nonexistent/program"], 127), (["/dev/null"], 126)):
        with started("--", *argv) as process:
            assert process.wait(PATIENCE_S) == status, argv
    with started("--set", "nonsense=1", "--", "true") as process:
        assert process.wait(PATIENCE_S) == 125


def main():
    slowdisktest.check_host("mkfs.ext4")
    ends_by_itself("none", "exit 0", 0)
    ends_by_itself("file", "exit 7", 7)
    ends_by_itself("ext4", "kill -9 $$", 137)
    ends_by_itself("ext4", 'exec > "$UBD_SLOW_DISK/f"; setsid sleep 1000 &', 0)
    # Writes that nobody flushed, on a disk that fails them.
    ends_by_itself("ext4", 'echo x > "$UBD_SLOW_DISK/f"; "$UBD_SLOW_CTL" '
                   '"$UBD_SLOW_CONTROL" cut > /dev/null; exit 3', 3)
    is_interrupted(signal.SIGTERM, 143, to_group=False)
    is_interrupted(signal.SIGINT, 130, to_group=False)
    is_interrupted(signal.SIGINT, 130, to_group=True)
    is_killed()
    cannot_be_run()


if __name__ == "__main__":
    main()
