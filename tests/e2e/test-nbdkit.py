#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Every way that nbdkit has of running a plugin works: the file is opened before
# it forks and before it changes user, rings and threads start after.  Guards
# .get_ready against .after_fork.

from ubdtest import *


def serves_and_syncs(connect, img, offset=0):
    h = connect()
    h.pwrite(b"w" * 4096, offset)
    h.flush()
    same_bytes(h.pread(4096, offset), b"w" * 4096, "read back")
    h.shutdown()
    same_bytes(read_file(img, 4096, offset), b"w" * 4096, "the file")


def daemon(t, *args, nbdkit=(), **kwargs):
    """A server in the background; returns its pidfd and how to connect."""
    sock = t.path("daemon.sock")
    pidfile = t.path("daemon.pid")
    for left in (sock, pidfile):  # By the test before; nbdkit leaves both.
        with contextlib.suppress(FileNotFoundError):
            os.unlink(left)
    # The daemon keeps stderr; the launcher's end is what run() waits for, so
    # it must not be a pipe that stays open.
    with open(t.path("daemon.log"), "wb") as log:
        process = t.start(["nbdkit", "-U", sock, "-P", pidfile, *nbdkit,
                           plugin(), *args], cwd=t.dir, stdout=log,
                          stderr=log, stdin=subprocess.DEVNULL, **kwargs)
    status = process.wait(PATIENCE)
    equal(status, 0, f"the launcher: {read_file(t.path('daemon.log'))!r}")
    # The launcher may end before the daemon writes its pid.
    wait_for(lambda: os.path.exists(pidfile) and read_file(pidfile).strip(),
             "the pid of the daemon")
    fd = t.own_pid(int(read_file(pidfile)))

    def connect():
        h = nbd.NBD()
        h.connect_unix(sock)
        return h

    return fd, connect


def end_daemon(fd):
    signal.pidfd_send_signal(fd, signal.SIGTERM)
    check(pidfd_ended(fd), "the daemon did not end after SIGTERM")


@test
def runs_in_the_foreground(t):
    for options in ((), ("-t", "1"), ("-t", "64")):
        img = t.image()
        server = t.serve(img, nbdkit=options)
        serves_and_syncs(server.connect, img)
        server.handles.clear()
        equal(server.stop().syncs, 1, f"{options}: syncs")


@test
def runs_in_the_background_with_relative_paths(t):
    # The daemon's working directory is /.
    for io in engines():
        img = t.image()
        fd, connect = daemon(t, "disk.img", "metrics=m", "io=" + io)
        serves_and_syncs(connect, img)
        end_daemon(fd)
        m = Metrics(read_file(t.path("m")).decode())
        equal(m.syncs, 1, f"io={io}: syncs")
        equal(m.find("ubd_info")[0][1].get("file"), img, "absolute path")
        os.unlink(t.path("m"))


@test
def an_error_at_start_is_seen_before_it_goes_to_the_background(t):
    # A failure in .after_fork would be invisible: the launcher exits with 0.
    for args in (("missing.img",), ("disk.img", "cache=nonsense"),
                 ("disk.img", "metrics=no-such-folder/m")):
        t.image()
        out = t.run(["nbdkit", "-U", t.path("s"), "-P", t.path("p"), plugin(),
                     *args], status=None)
        check(out.strip(), f"{args}: no message")
        check(not os.path.exists(t.path("p")), f"{args}: it runs")


@test
def run_ends_with_its_command(t):
    need_tool("nbdinfo")
    img = t.image()
    out = t.run(["nbdkit", "-U", "-", plugin(), "file=disk.img",
                 "--run", 'nbdinfo --size "$uri"'])
    mentions(out, str(MiB))
    out = t.run(["nbdkit", "-U", "-", plugin(), "disk.img", "metrics=m",
                 "--run", "nbdinfo --map \"$uri\" >/dev/null; exit 7"],
                status=7)
    check(os.path.exists(t.path("m")), "no metrics at the end of --run")
    equal(os.stat(img).st_size, MiB, "length of the file")


@test
def run_reports_a_refusal(t):
    out = t.run(["nbdkit", "-U", "-", plugin(), "missing.img", "--run",
                 "echo the command ran"], status=None)
    check("the command ran" not in out, out)
    mentions(out, "missing.img")


@test
def changes_user_after_the_file_is_open(t):
    need_root("-u")
    nobody()
    img = t.image()
    os.chmod(img, 0o600)
    for io in engines():
        server = t.serve(img, "io=" + io, nbdkit=("-u", "nobody"))
        uids = re.search(r"^Uid:\s+(.*)$",
                         read_file(f"/proc/{server.pid}/status").decode(),
                         re.M)[1].split()
        equal(set(uids), {str(nobody()[0])}, "user of the server")
        serves_and_syncs(server.connect, img)
        server.handles.clear()
        equal(server.stop().syncs, 1, f"io={io}: syncs")


@test
def ends_with_its_parent(t):
    img = t.image()
    # A shell that stays the parent; its stdin is how it learns when to end.
    sock, pidfile = t.path("s"), t.path("p")
    parent = t.start(
        ["sh", "-c", 'nbdkit -f --exit-with-parent -U "$1" -P "$2" "$3" "$4" '
         '"$5" & read _', "sh", sock, pidfile, plugin(), img,
         "metrics=" + t.path("m")],
        stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL)
    wait_for(lambda: os.path.exists(pidfile) and read_file(pidfile).strip(),
             "the server to start")
    fd = t.own_pid(int(read_file(pidfile)))

    def connect():
        h = nbd.NBD()
        h.connect_unix(sock)
        return h

    serves_and_syncs(connect, img)
    parent.kill()
    parent.wait(PATIENCE)
    check(pidfd_ended(fd), "the server outlived its parent")
    check(os.path.exists(t.path("m")), "no metrics at the end")


@test
def filters_work_on_top(t):
    img = t.image(4 * MiB)
    log = t.path("the-log")
    server = t.serve(img, "logfile=" + log, nbdkit=("--filter=log",))
    serves_and_syncs(server.connect, img)
    server.handles.clear()
    equal(server.stop().syncs, 1, "syncs below the log filter")
    mentions(read_file(log).decode(), "flush")

    # A part of the disk: offsets are moved, the flush still gets through.
    server = t.serve(img, "offset=1048576", "range=1048576",
                     nbdkit=("--filter=offset",))
    h = server.connect()
    equal(h.get_size(), MiB, "size of the part")
    h.pwrite(b"p" * 4096, 0)
    h.flush()
    equal(server.stop().syncs, 1, "syncs below the offset filter")
    same_bytes(read_file(img, 4096, MiB), b"p" * 4096, "the file")

    # Copy on write: the image below is read and never written.
    before = read_file(img)
    server = t.serve(img, nbdkit=("--filter=cow",))
    h = server.connect()
    h.pwrite(b"c" * 65536, 100)
    same_bytes(h.pread(65536, 100), b"c" * 65536, "read through cow")
    server.stop()
    same_bytes(read_file(img), before, "the file below cow")


@test
def serves_over_tls(t):
    check("tls=yes" in t.run(["nbdkit", "--dump-config"]), "nbdkit without TLS")
    h = nbd.NBD()
    if not h.supports_tls():
        raise Skip("this libnbd has no TLS")
    psk = t.path("keys.psk")
    with open(psk, "w", encoding="ascii") as f:
        f.write("client:" + os.urandom(32).hex() + "\n")
    img = t.image()
    server = t.serve(img, nbdkit=("--tls=require", "--tls-psk=" + psk))

    def secure(h):
        h.set_tls(nbd.TLS_REQUIRE)
        h.set_tls_psk_file(psk)
        h.set_tls_username("client")

    serves_and_syncs(lambda: server.connect(configure=secure), img)
    server.handles.clear()
    equal(server.stop().syncs, 1, "syncs")


@test
def one_client_on_stdin_works(t):
    img = t.image()
    h = nbd.NBD()
    h.connect_command(["nbdkit", "-s", "--exit-with-parent", plugin(), img])
    h.pwrite(b"s" * 4096, 0)
    h.flush()
    h.shutdown()
    del h
    same_bytes(read_file(img, 4096), b"s" * 4096, "the file")


@test
def advertises_what_it_can(t):
    h = t.serve(t.image()).connect()
    for what in ("can_flush", "can_fua", "can_multi_conn", "can_trim",
                 "can_zero", "can_fast_zero", "can_cache"):
        check(getattr(h, what)(), f"{what} is false")
    check(not h.is_read_only(), "read-only")


main()
