#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# The trace's file: what may be one and what is refused untouched; and that
# nothing about it, a full file system or a pipe that nobody reads, holds up a
# request or the end of the server.  Guards ubd_trace_open(), the drops and
# ubd_trace_stop().

import fcntl

from traces import *

# More than the ring, the text and the pipe hold.
MANY = 65536 + 10000
# More than the pipe holds, and the text.
SOME = 12000

OLD = b'{"ubd_trace":1,"old":true}\n'


def write_file(path, data):
    with open(path, "wb") as f:
        f.write(data)
    return path


def listing(t):
    return sorted(x for x in os.listdir(t.dir) if not x.startswith("refused"))


def refused(t, img, path, *words, more=()):
    """Refused in one line, and nothing is made, lost or changed."""
    before = listing(t)
    content = read_file(img)
    old = read_file(path) if os.path.isfile(path) else None
    out = t.refuse(img, "trace=" + path, *more)
    lines = [x for x in out.splitlines() if x]
    equal(len(lines), 1, f"lines of {out!r}")
    mentions(out, "trace", path, *words)
    equal(listing(t), before, "files")
    same_bytes(read_file(img), content, "the image")
    if old is not None:
        same_bytes(read_file(path), old, path)


@test
def what_is_no_trace_is_refused_untouched(t):
    img = t.image(data=b"precious" * 512)
    refused(t, img, t.path("no", "such", "trace"), "folder", "expected")
    refused(t, img, t.dir, "regular file", "expected")
    refused(t, img, img, "image", "expected")
    os.link(img, t.path("hard"))
    refused(t, img, t.path("hard"), "image")
    os.symlink(img, t.path("soft"))
    refused(t, img, t.path("soft"), "image")
    os.symlink(t.path("nowhere"), t.path("dangling"))
    refused(t, img, t.path("dangling"), "dangling", "expected")
    for content in b"hello\n", b"{", b'{"ubd_other":1}\n' + OLD:
        refused(t, img, write_file(t.path("foreign"), content),
                "not a trace", "expected")
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(t.path("socket"))
    refused(t, img, t.path("socket"), "expected")
    sock.close()
    for device in "/dev/zero", "/dev/random":
        mentions(t.refuse(img, "trace=" + device), "trace=", device,
                 "expected")
    mentions(t.refuse(img, "trace="), "trace=", "path")


@test
def empty_image_is_not_taken_for_an_empty_trace(t):
    img = t.image(0)
    refused(t, img, img, "image")


@test
def block_device_is_refused(t):
    need_root("a loop device")
    device = t.loop(t.image(MiB, name="other.img")).path
    mentions(t.refuse(t.image(), "trace=" + device), "trace=", device,
             "regular file")


@test
def file_of_the_metrics_is_refused(t):
    img = t.image()
    path = t.path("both")
    refused(t, img, path, "metrics", more=["metrics=" + path])
    os.symlink(path, t.path("alias"))
    write_file(path, b"")
    refused(t, img, t.path("alias"), "metrics", more=["metrics=" + path])


@test
def server_that_does_not_start_leaves_the_old_trace_alone(t):
    img = t.image()
    path = write_file(t.path("trace"), OLD)
    bad = t.path("no", "metrics")
    mentions(t.refuse(img, "trace=" + path, "metrics=" + bad), "metrics")
    same_bytes(read_file(path), OLD, "the old trace")
    mentions(t.refuse(t.path("no.img"), "trace=" + path), "no.img")
    same_bytes(read_file(path), OLD, "the old trace")
    mentions(t.refuse(img, "trace=" + t.path("new"), "metrics=" + bad),
             "metrics")
    check(not os.path.exists(t.path("new")), "a trace was left behind")


@test
def old_trace_and_empty_file_are_begun_anew(t):
    for old in OLD * 1000, b"":
        path = write_file(t.path("trace"), old)
        server = t.serve(t.image(), "trace=" + path)
        server.connect().pread(512, 0)
        server.stop()
        equal(len(read_trace(path).records), 1, "records")


@test
def trace_of_a_running_server_is_refused(t):
    path = t.path("trace")
    server = t.serve(t.image(), "trace=" + path)
    h = server.connect()
    h.pread(512, 0)
    wait_for(lambda: len(read_file(path).splitlines()) == 2, "the line")
    refused(t, t.image(name="other.img"), path, "another server")
    h.pread(512, 0)
    server.stop()
    equal(len(read_trace(path).records), 2, "records")


@test
def any_name_of_an_image_is_valid_json(t):
    for name in (b'quote " and \\', b"new\nline\ttab\x01", b"latin \xe9\xff",
                 "\u20ac \U0001f600".encode(), b"half \xe2\x82"):
        img = os.fsencode(t.dir) + b"/" + name
        write_file(img, bytes(4096))
        path = t.new_path("trace")
        server = t.serve("file=" + os.fsdecode(img), "trace=" + path,
                         metrics=False)
        server.stop()
        equal(os.fsencode(read_trace(path).first["file"]), img, "file")


@test
def server_in_the_background_as_another_user_traces(t):
    img, path = t.image(), t.path("trace")
    folder = t.path("theirs")
    os.mkdir(folder)
    os.chmod(folder, 0o777)
    sock, pidfile = folder + "/sock", folder + "/pid"
    user = []
    if is_root():
        os.chown(img, *nobody())
        user = ["-u", "nobody"]
    t.run(["nbdkit", "-U", sock, "-P", pidfile, *user, plugin(), img,
           "trace=" + path])
    pid = int(wait_for(lambda: os.path.exists(pidfile) and read_file(pidfile),
                       "the pid file"))
    ended = t.own_pid(pid)
    h = nbd.NBD()
    h.connect_unix(sock)
    h.pread(512, 0)
    h.shutdown()
    signal.pidfd_send_signal(ended, signal.SIGTERM)
    check(pidfd_ended(ended), "the server did not end")
    trace = read_trace(path)
    equal(trace.first["pid"], pid, "pid in the first line")
    equal(len(trace.records), 1, "records")


class Fifo:
    """A pipe with a name; nobody reads it until drain()."""

    def __init__(self, t):
        self.path = t.new_path("fifo")
        os.mkfifo(self.path)
        self.fd = os.open(self.path, os.O_RDWR | os.O_NONBLOCK)
        t.at_end(os.close, self.fd)
        self.data = bytearray()

    def read(self):
        """What is there now."""
        while True:
            try:
                self.data += os.read(self.fd, MiB)
            except BlockingIOError:
                return bytes(self.data)


@test
def requests_go_on_when_nobody_reads_the_pipe_and_drops_are_counted(t):
    fifo = Fifo(t)
    server = t.serve(t.image(), "trace=" + fifo.path)
    client = FastClient(server)
    client.ask(MANY)
    # Now somebody reads; all that was kept comes, and what comes next.
    wait_for(lambda: b'{"dropped"' in fifo.read(), "the line of the drops")
    client.ask(10)
    client.close()
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: fifo.read() and not server.alive(), "the end")
    equal(server.wait(), 0, "exit status")
    trace = Trace(fifo.read())
    equal(len(trace.drops), 1, "lines of drops")
    check(trace.last["dropped"] > 0, "nothing was dropped")
    equal(trace.last["records"] + trace.last["dropped"], MANY + 10,
          "records and drops")
    equal(trace.records[-1]["id"], MANY + 10, "the last request's id")
    m = server.metrics()
    equal(m("ubd_trace_records_total"), trace.last["records"], "metric")
    equal(m("ubd_trace_dropped_total"), trace.last["dropped"], "metric")


@test
def server_ends_while_the_pipe_is_stuck(t):
    fifo = Fifo(t)
    server = t.serve(t.image(), "trace=" + fifo.path)
    client = FastClient(server)
    client.ask(SOME)
    client.close()
    m = server.stop()
    trace = Trace(fifo.read(), is_whole=False)
    check(trace.last is None, "the pipe held everything")
    equal(m("ubd_trace_records_total") + m("ubd_trace_dropped_total"), SOME,
          "records and drops")
    check(m("ubd_trace_dropped_total") > 0, "dropped at the end")
    check(0 <= m("ubd_trace_records_total") - len(trace.records) <= 1,
          "records but the one that is cut short")


@test
def reader_that_goes_on_reading_gets_the_end(t):
    fifo = Fifo(t)
    server = t.serve(t.image(), "trace=" + fifo.path)
    client = FastClient(server)
    fcntl.fcntl(fifo.fd, fcntl.F_SETPIPE_SZ, 65536)  # Much is still to come.
    client.ask(SOME)
    client.close()
    server.process.send_signal(signal.SIGTERM)
    wait_for(lambda: fifo.read() and not server.alive(), "the end")
    equal(server.wait(), 0, "exit status")
    trace = Trace(fifo.read())
    equal(trace.last["records"], SOME, "records")


@test
def pipe_without_a_reader_and_null_are_fine(t):
    os.mkfifo(t.path("fifo"))
    for path in t.path("fifo"), "/dev/null":
        server = t.serve(t.image(), "trace=" + path)
        server.connect().pread(512, 0)
        m = server.stop()
        equal(m("ubd_trace_records_total"), 1, path)


@test
def full_file_system_is_warned_of_once_and_requests_go_on(t):
    server = t.serve(t.image(), "trace=/dev/full")
    client = FastClient(server)
    for _ in range(5):
        client.ask(1000)
        server.metrics_when(lambda m: m("ubd_trace_dropped_total") > 0,
                            "drops")
    client.close()
    m = server.stop()
    equal(m("ubd_trace_records_total"), 0, "records")
    equal(m("ubd_trace_dropped_total"), 5000, "dropped")
    equal(server.log().count("trace=/dev/full"), 1, "warnings")
    mentions(server.log(), "No space left")


@test
def trace_goes_on_where_it_stopped_once_there_is_room(t):
    # Pages of the file system end within a line; no line may be spoiled.
    need_root("a mount")
    folder = t.path("small")
    os.mkdir(folder)
    t.at_end(umount, folder)
    t.run(["mount", "-t", "tmpfs", "-o", "size=1M", "ubd-e2e", folder])
    ballast = write_file(os.path.join(folder, "ballast"), bytes(512 * KiB))
    path = os.path.join(folder, "trace")
    server = t.serve(t.image(), "trace=" + path)
    client = FastClient(server)
    client.ask(SOME)
    server.metrics_when(lambda m: m("ubd_trace_dropped_total") > 0 and
                        m("ubd_trace_records_total") +
                        m("ubd_trace_dropped_total") == SOME, "drops")
    os.unlink(ballast)
    client.ask(100)
    client.close()
    server.stop()
    trace = read_trace(path)
    check(trace.drops, "no line of drops")
    equal(trace.last["records"] + trace.last["dropped"], SOME + 100,
          "records and drops")
    equal(trace.records[-1]["id"], SOME + 100, "the last request's id")
    equal(server.log().count("cannot be written"), 1, "warnings")


main()
