#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Under nbdkit's filters the data is right and a FLUSH still reaches us; and the
# server needs no privilege: nobody can serve nobody's image.  Guards what we
# tell nbdkit about ourselves (can_fua, can_zero, can_multi_conn...).

from ubdtest import *

SIZE = 4 * MiB

# Name, arguments, is the image changed, do flushes arrive.
FILTERS = (
    ("blocksize", ("minblock=4096",), True, True),
    ("blocksize-policy", ("blocksize-error-policy=allow",), True, True),
    ("cache", ("cache=writethrough",), True, True),
    ("cacheextents", (), True, True),
    ("cow", (), False, False),
    ("exitlast", (), True, True),
    ("fua", ("fuamode=emulate",), True, True),
    ("fua", ("fuamode=native",), True, True),
    ("limit", ("limit=10",), True, True),
    ("multi-conn", ("multi-conn-mode=disable",), True, True),
    ("nocache", ("cachemode=none",), True, True),
    ("noextents", (), True, True),
    ("noparallel", ("serialize=all-requests",), True, True),
    ("nozero", (), True, True),
    ("nozero", ("zeromode=emulate",), True, True),
    ("offset", ("offset=0", f"range={SIZE}"), True, True),
    ("rate", ("rate=4G",), True, True),
    ("readahead", (), True, True),
    ("retry-request", ("retry-request-retries=1",), True, True),
    ("stats", ("statsfile=/dev/null",), True, True),
    ("truncate", ("round-up=4096",), True, True),
)


def has_filter(name):
    folder = subprocess.run(["nbdkit", "--dump-config"], check=True,
                            stdout=subprocess.PIPE, text=True).stdout
    folder = re.search(r"^filterdir=(.*)$", folder, re.M)[1]
    return os.path.exists(os.path.join(folder, f"nbdkit-{name}-filter.so"))


def exercise(server, content):
    """A little of everything; @content becomes what the disk holds."""
    rnd = random.Random(7)
    h = server.connect()
    for i in range(60):
        at = rnd.randrange(SIZE - 70000)
        length = rnd.choice((1, 511, 512, 4096, 5000, 65536))
        if i % 6 == 5 and h.can_zero():
            h.zero(length, at)
            content[at:at + length] = bytes(length)
        else:
            data = rnd.randbytes(length)
            fua = nbd.CMD_FLAG_FUA if i % 6 == 4 and h.can_fua() else 0
            h.pwrite(data, at, fua)
            content[at:at + length] = data
        if i % 20 == 10:
            h.flush()
    h.flush()
    same_bytes(h.pread(SIZE, 0), content, "what is served")


@test
def data_is_right_and_flushes_arrive_under_every_filter(t):
    nr = 0
    for name, args, is_changed, is_flushed in FILTERS:
        if not has_filter(name):
            print(f"  note: nbdkit has no {name} filter here")
            continue
        start = pattern(SIZE)
        img = t.image(data=start, name=f"{name}.img")
        # The cache filter has a parameter of our name.
        mode = () if name == "cache" else ("cache=barrier",)
        server = t.serve(img, *mode, *args, nbdkit=(f"--filter={name}",))
        content = bytearray(start)
        try:
            exercise(server, content)
        except (nbd.Error, Failure) as e:
            raise Failure(f"filter {name} {args}: {e}") from None
        if name == "exitlast":
            server.disconnect_all()
            equal(server.wait(), 0, "exitlast: status")
            m = server.metrics()
        else:
            m = server.stop()
        what = f"filter {name} {args}"
        same_bytes(read_file(img), content if is_changed else start, what)
        if is_flushed:
            check(m.flushes >= 4, f"{what}: {m.flushes} flushes")
            check(m.syncs >= 4, f"{what}: {m.syncs} syncs")
        equal(m("ubd_lost_data"), 0, what)
        nr += 1
    check(nr >= 10, f"only {nr} filters were tried")


@test
def filters_can_be_stacked(t):
    start = pattern(SIZE)
    img = t.image(data=start)
    stack = ("log", "stats", "blocksize", "fua", "nozero", "readahead",
             "multi-conn", "rate")
    if not all(has_filter(f) for f in stack):
        raise Skip("not all filters are installed")
    server = t.serve(
        img, "logfile=" + t.path("log"), "statsfile=/dev/null",
        "minblock=512", "fuamode=force", "zeromode=emulate", "rate=4G",
        "multi-conn-mode=plugin", nbdkit=[f"--filter={f}" for f in stack])
    content = bytearray(start)
    exercise(server, content)
    m = server.stop()
    same_bytes(read_file(img), content, "the image")
    # Every write was made durable by fuamode=force.
    writes = m("ubd_requests_total", kind="write")
    equal(m("ubd_fua_total", kind="write"), writes, "writes with FUA")


@test
def a_partition_is_served(t):
    if not has_filter("partition"):
        raise Skip("nbdkit has no partition filter")
    # An MBR with one partition of 4096 sectors from sector 2048 on.
    mbr = bytearray(512)
    struct.pack_into("<B3xB3xII", mbr, 446, 0, 0x83, 2048, 4096)
    mbr[510:] = b"\x55\xaa"
    img = t.image(SIZE, data=bytes(mbr))
    before = read_file(img)
    server = t.serve(img, "partition=1", nbdkit=("--filter=partition",))
    h = server.connect()
    equal(h.get_size(), 2 * MiB, "size of the partition")
    data = pattern(MiB)
    h.pwrite(data, MiB)
    h.flush()
    m = server.stop()
    equal((m.flushes, m.syncs), (1, 1), "flushes, syncs")
    same_bytes(read_file(img), before[:2 * MiB] + data + before[3 * MiB:],
               "the image")


@test
def nobody_can_serve_nobodys_image(t):
    need_root("to become nobody")
    need_tool("setpriv")
    uid, gid = nobody()
    for io in engines():
        for mode in MODES:
            start = pattern(SIZE)
            img = t.image(data=start, name=f"{io}-{mode}.img")
            os.chown(img, uid, gid)
            os.chmod(img, 0o600)
            so = t.path("plugin.so")  # The build may be in root's folder.
            shutil.copyfile(plugin(), so)
            os.chmod(so, 0o755)
            server = t.serve(
                img, "io=" + io, "cache=" + mode, so=so, before=(
                    "setpriv", f"--reuid={uid}", f"--regid={gid}",
                    "--clear-groups", "--inh-caps=-all",
                    "--bounding-set=-all", "--no-new-privs"))
            status = read_file(f"/proc/{server.pid}/status").decode()
            mentions(status, f"Uid:\t{uid}", "CapEff:\t0000000000000000")
            content = bytearray(start)
            exercise(server, content)
            m = server.stop()
            same_bytes(read_file(img), content, f"{io} {mode}: the image")
            check(m.find("ubd_info", engine=io, mode=mode), "ubd_info")
            check(m.flushes >= 4, "flushes")


main()
