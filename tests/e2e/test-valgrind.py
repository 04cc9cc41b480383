#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Under valgrind's memcheck no request and no refused start reads what was never
# written, touches memory that is not ours or leaves memory behind.  Real
# requests, against the plugin as it is shipped; the sanitizers only see the
# unit tests.  What nbdkit itself leaks is in valgrind.supp.
#
# valgrind does not see what the kernel writes through a ring: a buffer that a
# ring has read into keeps the state it had (valgrind-rings.supp).

import concurrent.futures

from ubdtest import *

SIZE = 2 * MiB
ERRORS = 99  # valgrind's exit status when it has something to say.


def memcheck(log, options=()):
    # The plugin is unloaded before valgrind reports, hence keep-debuginfo.
    # Deep stacks, so that suppressions can ask for all of a stack.
    here = os.path.dirname(os.path.abspath(__file__))
    suppressions = ["valgrind.supp"]
    if "direct=true" in options and "io=syscalls" not in options:
        suppressions.append("valgrind-rings.supp")
    return [need_tool("valgrind"), "--quiet", "--tool=memcheck",
            f"--error-exitcode={ERRORS}", "--leak-check=full",
            "--errors-for-leak-kinds=definite", "--show-leak-kinds=definite",
            "--child-silent-after-fork=no", "--keep-debuginfo=yes",
            "--num-callers=50", "--gen-suppressions=all", "--fair-sched=try",
            f"--log-file={log}",
            *(f"--suppressions={here}/{name}" for name in suppressions)]


def clean_end(what, log, status, expected):
    said = ""
    if os.path.exists(log):
        said = read_file(log).decode(errors="replace")
    check(not said and status != ERRORS, f"{what}: valgrind said:\n{said}")
    equal(status, expected, f"{what}: exit status")


def zeroes_of_every_kind(h, rng):
    fua, no_hole, fast = (nbd.CMD_FLAG_FUA, nbd.CMD_FLAG_NO_HOLE,
                          nbd.CMD_FLAG_FAST_ZERO)
    for flags in (0, fua, no_hole, fua | no_hole, fast, fast | no_hole):
        for offset, count in ((0, 64 * KiB), (rng.randrange(4096), 9000),
                              (123, 5)):
            try:
                h.zero(count, offset, flags)
            except nbd.Error as e:
                check(flags & fast and nbd_errno(e) in
                      (errno.ENOTSUP, errno.EOPNOTSUPP), f"zero {flags}: {e}")


def requests_of_every_kind(h, seed):
    rng = random.Random(seed)
    fua = nbd.CMD_FLAG_FUA
    for offset, count in ((0, 4096), (4096, 64 * KiB), (1, 1), (511, 4098),
                          (SIZE - 1, 1), (rng.randrange(MiB), 77777)):
        for flags in (0, fua):
            data = rng.randbytes(count)
            h.pwrite(data, offset, flags)
            same_bytes(h.pread(count, offset), data, f"{offset}+{count}")
    h.flush()
    h.flush()
    zeroes_of_every_kind(h, rng)
    if h.can_trim():
        for offset, count in ((MiB, 128 * KiB), (MiB + 17, 9000), (3, 4)):
            h.trim(count, offset)
            h.trim(count, offset, fua)
    if h.can_cache():
        h.cache(SIZE, 0)
        h.cache(5, 77)
    seen = []
    if h.can_meta_context("base:allocation"):
        for flags in (0, nbd.CMD_FLAG_REQ_ONE):
            h.block_status(SIZE, 0, lambda *a: seen.append(a) or 0, flags)
            h.block_status(99, 4095, lambda *a: seen.append(a) or 0, flags)
        check(seen, "no extents")
    h.flush()


def many_at_once(handles, seed):
    """Requests in flight on all connections, neighbours in one block."""
    rng = random.Random(seed)
    lines = [Pipeline(h) for h in handles]
    for n in range(12):
        for i, line in enumerate(lines):
            at = (n * len(lines) + i) * 700
            flags = nbd.CMD_FLAG_FUA if n % 5 == 4 else 0
            line.pwrite(("w", n), rng.randbytes(700), at, flags)
            line.pread(("r", n), 3000, at)
            if n % 4 == 3:
                line.flush(("f", n))
                line.zero(("z", n), 600, MiB + at)
    for line in lines:
        line.all_succeeded()


def asks_before_it_opens(server):
    """As qemu does; and it leaves without a word."""
    h = server.connect(configure=lambda h: h.set_opt_mode(True))
    h.opt_info()
    h.opt_list(lambda *_: 0)
    h.opt_go()
    h.pread(512, 0)
    server.handles.remove(h)
    del h


def refused_requests(h, img):
    """Requests that fail: some in nbdkit, some in the engine."""
    h.set_strict_mode(0)
    fails_with("EINVAL", h.pread, 512, SIZE)
    fails_with(("EINVAL", "ENOSPC"), h.pwrite, b"x" * 512, SIZE)
    os.truncate(img, 100)
    fails_with("EIO", h.pread, 4096, MiB)
    fails_with("EIO", h.pread, 300, 0)
    with contextlib.suppress(nbd.Error):  # Whatever it is, not rubbish.
        h.block_status(SIZE, 0, lambda *_: 0)
    with contextlib.suppress(nbd.Error):
        h.cache(4096, MiB)
    os.truncate(img, SIZE)
    h.pread(4096, MiB)


def serve_cleanly(t, folder, *options, readonly=False):
    what = " ".join(options) + (" -r" if readonly else "")
    os.mkdir(t.path(folder))
    img = t.image(data=pattern(SIZE), name=folder + "/disk.img")
    log = t.path(folder, "valgrind")
    with t.lock:  # Only one server at a time can be started.
        server = t.serve(img, *options, before=memcheck(log, options),
                         nbdkit=("-r",) if readonly else ())
    asks_before_it_opens(server)
    handles = [server.connect(extents=True) for _ in range(3)]
    if readonly:
        same_bytes(handles[0].pread(SIZE, 0), pattern(SIZE), "the image")
        handles[0].set_strict_mode(0)
        fails_with("EPERM", handles[0].pwrite, b"x", 0)
        handles[0].flush()
    else:
        requests_of_every_kind(handles[0], 1)
        many_at_once(handles, 2)
        refused_requests(handles[1], img)
    server.disconnect_all()
    server.process.send_signal(signal.SIGTERM)
    clean_end(what, log, server.wait(), 0)


def each(t, call, rows):
    """Two at a time: valgrind runs one thread of a program at a time."""
    with contextlib.ExitStack() as stack:
        pool = stack.enter_context(concurrent.futures.ThreadPoolExecutor(2))
        for result in [pool.submit(call, t, f"run{n}", *row)
                       for n, row in enumerate(rows)]:
            result.result()


@test
def no_request_misuses_memory_in_any_mode(t):
    need_tool("valgrind")
    each(t, serve_cleanly,
         [("cache=" + mode, "io=" + io)
          for mode in ("barrier", "osync") for io in engines()] +
         [("cache=unsafe",), ("trim=false", "trace=" + t.path("trace"))])


@test
def no_request_misuses_memory_around_the_page_cache(t):
    need_tool("valgrind")
    if not takes_direct(t.image()):
        raise Skip("this file system refuses O_DIRECT")
    each(t, serve_cleanly,
         [("direct=true", "io=" + io) for io in engines()] +
         [("direct=true", "cache=osync")])


@test
def no_read_only_disk_misuses_memory(t):
    need_tool("valgrind")
    serve_cleanly(t, "readonly", readonly=True)


def refuse_cleanly(t, folder, *args):
    os.mkdir(t.path(folder))
    log = t.path(folder, "valgrind")
    process = t.start([*memcheck(log), "nbdkit", "-f", "--exit-with-parent",
                       "-U", t.path(folder, "s"), plugin(), *args],
                      cwd=t.dir, stdin=subprocess.DEVNULL,
                      stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        status = process.wait(PATIENCE)
    except subprocess.TimeoutExpired:
        raise Failure(f"{args}: not refused in {PATIENCE} s") from None
    clean_end(" ".join(args), log, status, 1)


@test
def no_refused_start_misuses_memory(t):
    need_tool("valgrind")
    t.image()
    t.image(name="locked.img")
    t.serve(t.path("locked.img"))
    each(t, refuse_cleanly,
         [("missing.img",), ("disk.img", "cache=nonsense"),
          ("disk.img", "file=disk.img"), ("locked.img",),
          ("disk.img", "metrics=no-such-folder/m"),
          ("disk.img", "trace=no-such-folder/t"), ("cache=osync",)])


@test
def no_question_about_the_plugin_misuses_memory(t):
    need_tool("valgrind")
    log = t.path("valgrind")
    for word in ("--help", "--version", "--dump-plugin"):
        process = t.start([*memcheck(log), "nbdkit", plugin(), word],
                          stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL)
        clean_end(word, log, process.wait(PATIENCE), 0)


main()
