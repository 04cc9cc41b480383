#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# metrics=PATH is a valid Prometheus text file that is replaced atomically while
# the server runs and written at exit, and it counts what was done.  Guards the
# writer of the metrics and its start: a path that cannot be written is an error
# then, not later.

from ubdtest import *

KINDS = ("read", "write", "trim", "zero", "flush", "cache", "extents")
HISTOGRAMS = ("ubd_flush_seconds", "ubd_sync_seconds", "ubd_fua_seconds")


def valid(m):
    """What the text format asks for."""
    for name, _, value in m.samples:
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        family = family if m.types.get(family) == "histogram" else name
        check(family in m.types, f"{name} has no TYPE")
        check(m.helps.get(family), f"{name} has no HELP")
        kind = m.types[family]
        check(kind in ("counter", "gauge", "histogram"), f"{name}: {kind}")
        equal(kind == "counter", name.endswith("_total"),
              f"{name} is a {kind}; counters end in _total")
        check(value >= 0, f"{name} is {value}")
    seen = [(s[0], tuple(sorted(s[1].items()))) for s in m.samples]
    equal(len(seen), len(set(seen)), "samples that differ")
    # All samples of one family stand together.
    families = []
    for name, _, _ in m.samples:
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        family = family if m.types.get(family) == "histogram" else name
        if not families or families[-1] != family:
            families.append(family)
    equal(len(families), len(set(families)), "families in one piece")
    for name in HISTOGRAMS:
        equal(m.types.get(name), "histogram", name)
        buckets = m.find(name + "_bucket")
        check(buckets, f"{name} has no buckets")
        bounds = [float(b[1]["le"].replace("+Inf", "inf")) for b in buckets]
        counts = [b[2] for b in buckets]
        equal(bounds, sorted(set(bounds)), f"bounds of {name}")
        equal(counts, sorted(counts), f"{name} is cumulative")
        equal(bounds[-1], float("inf"), f"last bound of {name}")
        equal(counts[-1], m(name + "_count"), f"+Inf and count of {name}")
        check(m(name + "_sum") >= 0, f"{name}_sum")


@test
def the_file_is_valid_and_complete_from_the_start(t):
    m = t.serve(t.image()).stop()
    valid(m)
    for kind in KINDS:
        equal(m("ubd_requests_total", kind=kind), 0, kind)
        equal(m("ubd_request_errors_total", kind=kind), 0, kind + " errors")
        if kind != "flush":
            equal(m("ubd_request_bytes_total", kind=kind), 0, kind + " bytes")
    for kind in ("write", "trim", "zero"):
        equal(m("ubd_fua_total", kind=kind), 0, "FUA " + kind)
    for name in ("ubd_flushes_merged_total", "ubd_flushes_clean_total",
                 "ubd_syncs_submitted_total", "ubd_syncs_completed_total",
                 "ubd_syncs_failed_total", "ubd_volatile_bytes",
                 "ubd_lost_data"):
        equal(m(name), 0, name)
    equal(len(m.find("ubd_info")), 1, "ubd_info lines")
    equal(m("ubd_info"), 1, "ubd_info")


@test
def info_names_mode_engine_and_file(t):
    name = 'odd "name" with \\ and \n in it.img'
    img = t.image(name=name)
    m = t.serve("file=" + img, "cache=osync", "io=syscalls").stop()
    labels = m.find("ubd_info")[0][1]
    equal(labels["mode"], "osync", "mode")
    equal(labels["engine"], "syscalls", "engine")
    equal(labels["file"], img, "file")


@test
def every_request_is_counted_with_its_bytes(t):
    for io in engines():
        server = t.serve(t.image(), "io=" + io)
        h = server.connect(extents=True)
        h.pread(1000, 5)
        h.pread(24, 0)
        h.pwrite(b"w" * 3000, 1)
        h.pwrite(b"w" * 96, 0, nbd.CMD_FLAG_FUA)
        h.trim(8192, 4096)
        h.trim(4096, 4096, nbd.CMD_FLAG_FUA)
        h.zero(5000, 3)
        h.zero(1, 3, nbd.CMD_FLAG_FUA)
        h.cache(4096, 0)
        h.flush()
        h.block_status(MiB, 0, lambda *_: 0)
        m = server.stop()
        valid(m)
        for kind, requests, size in (
                ("read", 2, 1024), ("write", 2, 3096), ("trim", 2, 12288),
                ("zero", 2, 5001), ("cache", 1, 4096)):
            equal(m("ubd_requests_total", kind=kind), requests, kind)
            equal(m("ubd_request_bytes_total", kind=kind), size,
                  kind + " bytes")
        equal(m.flushes, 1, "flush")
        check(m("ubd_requests_total", kind="extents") >= 1, "extents")
        for kind in ("write", "trim", "zero"):
            equal(m("ubd_fua_total", kind=kind), 1, "FUA " + kind)
        equal(m("ubd_flush_seconds_count"), 1, "flushes in the histogram")
        equal(m("ubd_sync_seconds_count"), m.syncs, "syncs in the histogram")
        check(m("ubd_fua_seconds_count") >= 1, "FUA in the histogram")
        check(m("ubd_flush_seconds_sum") > 0, "time of the flushes")


@test
def errors_are_counted(t):
    img = t.image()
    server = t.serve(img)
    h = server.connect()
    os.truncate(img, 0)
    for _ in range(3):
        fails_with("EIO", h.pread, 512, 0)
    m = server.stop()
    equal(m("ubd_request_errors_total", kind="read"), 3, "errors")
    equal(m("ubd_lost_data"), 0, "a read loses nothing")


@test
def the_file_is_rewritten_while_the_server_runs(t):
    server = t.serve(t.image())
    h = server.connect()
    h.pwrite(b"w" * 8192, 0)
    m = server.metrics_when(
        lambda m: m("ubd_requests_total", kind="write") == 1, "the write")
    equal(m("ubd_volatile_bytes"), 8192, "volatile bytes after a write")
    h.pwrite(b"w" * 4096, 65536)
    m = server.metrics_when(
        lambda m: m("ubd_requests_total", kind="write") == 2, "another write")
    equal(m("ubd_volatile_bytes"), 12288, "volatile bytes after two")
    h.flush()
    m = server.metrics_when(lambda m: m.flushes == 1, "the flush")
    equal(m("ubd_volatile_bytes"), 0, "volatile bytes after the flush")
    valid(m)
    server.stop()


@test
def the_file_is_replaced_and_never_half_written(t):
    # Whoever has it open keeps a whole old one; every read is a valid file.
    server = t.serve(t.image())
    h = server.connect()
    h.pread(512, 0)
    server.metrics_when(lambda m: True, "the first file")
    with open(server.metrics_path, encoding="ascii") as old:
        first = os.fstat(old.fileno())
        ino = first.st_ino

        def replaced():
            h.pread(512, 0)
            valid(server.metrics())
            return os.stat(server.metrics_path).st_ino != ino

        wait_for(replaced, "the file to be replaced")
        valid(Metrics(old.read()))
    server.stop()
    left = set(os.listdir(os.path.dirname(server.metrics_path)))
    check(left <= {"metrics", "log", "pid", "sock"}, f"left behind: {left}")


@test
def an_old_file_is_replaced_and_others_may_read_it(t):
    path = t.path("m")
    with open(path, "w", encoding="ascii") as f:
        f.write("# HELP ubd_info old\n")
    server = t.serve(t.image(), "metrics=" + path, metrics=False)
    server.stop()
    valid(Metrics(read_file(path).decode()))


@test
def a_path_that_cannot_be_written_is_an_error_at_start(t):
    img = t.image()
    os.mkdir(t.path("folder"))
    for path in (t.path("missing", "m"), t.path("folder"), img + "/m", ""):
        out = t.refuse(img, "metrics=" + path)
        mentions(out, "metrics", path)
    equal(os.listdir(t.path("folder")), [], "the folder")
    if is_root():
        uid, gid = nobody()
        so = shutil.copy(plugin(), t.path("nbdkit-ubd-plugin.so"))
        os.chmod(so, 0o755)
        os.chmod(img, 0o666)
        os.mkdir(t.path("closed"), 0o755)
        mine = t.path("mine")
        os.mkdir(mine)
        os.chmod(mine, 0o777)
        out = t.run(["nbdkit", "-f", "-U", os.path.join(mine, "s"), so, img,
                     "metrics=" + t.path("closed", "m")], status=None,
                    user=uid, group=gid, extra_groups=[])
        mentions(out, "metrics", "denied")


@test
def a_path_that_is_no_plain_file_is_refused_and_left_alone(t):
    # Renaming over it would destroy it: the image itself, a device, a FIFO.
    img = t.image(data=pattern(4096))
    os.symlink(img, t.path("link-to-the-image"))
    os.link(img, t.path("other-name-of-the-image"))
    os.mkfifo(t.path("fifo"))
    for path in (img, t.path("fifo"), t.path("other-name-of-the-image"),
                 t.path("link-to-the-image")):
        mentions(t.refuse(img, "metrics=" + path), "metrics", path)
    same_bytes(read_file(img), pattern(4096), "the image")
    check(stat.S_ISFIFO(os.lstat(t.path("fifo")).st_mode), "the FIFO is gone")


@test
def another_file_is_never_replaced(t):
    # It may be somebody's disk, and in use.  Nor is a link to one.
    img = t.image()
    other = t.path("other.img")
    for data in (pattern(4096), b"x"):
        with open(other, "wb") as f:
            f.write(data)
        os.symlink(other, t.path("link"))
        for path in (other, t.path("link")):
            mentions(t.refuse(img, "metrics=" + path), "metrics", path)
        same_bytes(read_file(other), data, "the other file")
        check(os.path.islink(t.path("link")), "the link is gone")
        os.unlink(t.path("link"))
    os.symlink(t.path("nothing"), t.path("dangling"))
    mentions(t.refuse(img, "metrics=" + t.path("dangling")), "dangling")
    check(os.path.islink(t.path("dangling")), "the dangling link is gone")


@test
def a_link_to_an_older_metrics_file_stays_a_link(t):
    server = t.serve(t.image())
    server.stop()
    os.symlink(server.metrics_path, t.path("link"))
    again = t.serve(t.image(name="b.img"), "metrics=" + t.path("link"),
                    metrics=False)
    again.stop()
    check(os.path.islink(t.path("link")), "the link is gone")
    check(b"b.img" in read_file(server.metrics_path), "written elsewhere")


@test
def without_the_parameter_nothing_is_written(t):
    img = t.image()
    server = t.serve(img, metrics=False)
    server.connect().pread(512, 0)
    server.stop()
    equal(sorted(os.listdir(t.dir)), ["disk.img", "server"], "the folder")


main()
