#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# trace=PATH has one line of JSON for each request: what was asked, when it
# came, started and ended, and which sync of the host made it durable.  Guards
# ubd_observe() and the order of the times.  Files and pipes: test-trace-file.

from traces import *

FUA = nbd.CMD_FLAG_FUA


def traced(t, *args, **kwargs):
    path = t.new_path("trace")
    return t.serve(*args, "trace=" + path, **kwargs), path


def only(records):
    equal(len(records), 1, "records")
    return records[0]


@test
def every_request_is_one_line_with_its_fields(t):
    for io in engines():
        img = t.image(name=io + ".img")
        begun = time.monotonic_ns()
        server, path = traced(t, img, "io=" + io)
        h = server.connect(extents=True)
        h.pread(1000, 5)
        h.pwrite(b"w" * 3000, 1)
        h.pwrite(b"w" * 96, 65536, FUA)
        h.trim(8192, 4096)
        h.trim(4096, 8192, FUA)
        h.zero(5000, 3)
        h.zero(1, 3, FUA | nbd.CMD_FLAG_NO_HOLE)
        h.cache(4096, 512)
        h.flush()
        h.block_status(4096, 0, lambda *_: 0, nbd.CMD_FLAG_REQ_ONE)
        server.stop()
        trace = read_trace(path)
        equal(trace.first | {"start": 0},
              {"ubd_trace": 1, "clock": "monotonic", "file": img,
               "mode": "barrier", "engine": io, "direct": False,
               "pid": server.pid, "start": 0}, "first line")
        equal(trace.last["dropped"], 0, "dropped")
        got = [(x["kind"], x["offset"], x["length"], sorted(x["flags"]))
               for x in trace.records]
        equal(got, [
            ("read", 5, 1000, []),
            ("write", 1, 3000, []),
            ("write", 65536, 96, ["fua"]),
            ("trim", 4096, 8192, []),
            ("trim", 8192, 4096, ["fua"]),
            ("zero", 3, 5000, ["may_trim"]),
            ("zero", 3, 1, ["fua"]),
            ("cache", 512, 4096, []),
            ("flush", 0, 0, []),
            ("extents", 0, 4096, ["req_one"]),
        ], "requests")
        equal([x["id"] for x in trace.records], list(range(1, 11)), "ids")
        equal({x["conn"] for x in trace.records}, {1}, "connections")
        equal({x["result"] for x in trace.records}, {0}, "results")
        times = [begun, trace.first["start"]]
        for x in trace.records:
            times += [x["arrival"], x["start"], x["end"]]
        times += [trace.last["end"], time.monotonic_ns()]
        equal(times, sorted(times), "times of requests one after the other")


@test
def durable_changes_name_what_made_them_so(t):
    server, path = traced(t, t.image())
    h = server.connect()
    h.pwrite(b"w" * 4096, 0)
    h.pwrite(b"w" * 4096, 0, FUA)
    h.zero(4096, 0, FUA)
    h.trim(4096, 0, FUA)
    m = server.stop()
    trace = read_trace(path)
    plain, fua, zero, trim = trace.records
    equal(plain["sync"], None, "sync of a plain write")
    equal(fua["sync"]["how"], "write", "FUA write")
    equal(fua["sync"]["id"], 0, "id of a durable write")
    equal([zero["sync"]["how"], trim["sync"]["how"]], ["led", "led"],
          "FUA zero and trim")
    equal([zero["sync"]["id"], trim["sync"]["id"]], [1, 2], "ids")
    equal(m.syncs, 2, "syncs")
    for x in fua, zero, trim:
        equal(x["sync"]["result"], 0, "result of the host")
        check(x["sync"]["tid"] > 0, "tid")
        times = [x["start"], x["sync"]["submitted"], x["sync"]["completed"],
                 x["end"]]
        equal(times, sorted(times), f"times of {x}")


@test
def clean_flush_names_the_last_good_sync(t):
    server, path = traced(t, t.image())
    h = server.connect()
    for _ in range(3):
        h.pwrite(b"w" * 512, 0)
        h.flush()
        h.flush()
    server.stop()
    trace = read_trace(path)
    equal(trace.hows("flush"), ["led", "clean"] * 3, "flushes")
    equal([x["sync"]["id"] for x in trace.of("flush")], [1, 1, 2, 2, 3, 3],
          "ids of their syncs")
    for x in trace.of("flush")[1::2]:
        equal((x["sync"]["submitted"], x["sync"]["completed"]), (0, 0),
              "times of a clean flush's sync")


@test
def modes_that_do_not_sync_say_so(t):
    server, path = traced(t, t.image(), "cache=osync")
    h = server.connect()
    h.pwrite(b"w" * 512, 0)
    h.zero(512, 0)
    h.flush()
    server.stop()
    trace = read_trace(path)
    equal(trace.first["mode"], "osync", "mode")
    equal([x["sync"]["how"] for x in trace.records], ["write", "led", "none"],
          "osync: write, zero, flush")

    server, path = traced(t, t.image(name="unsafe.img"), "cache=unsafe")
    h = server.connect()
    h.pwrite(b"w" * 512, 0)
    h.pwrite(b"w" * 512, 0, FUA)
    h.zero(512, 0, FUA)
    h.flush()
    server.stop()
    trace = read_trace(path)
    equal([x["sync"] and x["sync"]["how"] for x in trace.records],
          [None, "none", "none", "none"],
          "unsafe: write, FUA write, FUA zero, flush")
    for x in trace.records[1:]:
        equal(x["sync"] | {"how": ""}, {"id": 0, "how": "", "submitted": 0,
              "completed": 0, "tid": 0, "result": 0}, "a sync that was none")


def check_flushes(trace):
    """Every flush is answered by a sync that covers it, and says which."""
    led = {x["sync"]["id"]: x for x in trace.of("flush")
           if x["sync"]["how"] == "led"}
    writes = trace.of("write")
    for x in trace.of("flush"):
        leader = led[x["sync"]["id"]]
        sync = leader["sync"]
        check(leader["arrival"] <= sync["submitted"] <= sync["completed"]
              <= leader["end"], f"times of the leader {leader}")
        if x["sync"]["how"] == "joined":
            equal(x["sync"] | {"how": "led"}, sync, "the sync that it joined")
        check(sync["completed"] <= x["end"],
              f"{x} ends before its sync {sync}")
        if x["sync"]["how"] != "clean":
            equal(x["start"], max(x["arrival"], sync["submitted"]), "start")
        # Acknowledged before it came: handed to the host before the sync was.
        late = [w for w in writes if w["end"] <= x["arrival"] and
                w["start"] >= sync["submitted"]]
        check(not late, f"{x}: its sync is older than the write {late[:1]}")


@test
def flushes_that_share_a_sync_name_the_same_one(t):
    nr, each = 8, 12
    for io in engines():
        img = t.image(64 * MiB, name=io + ".img")
        server, path = traced(t, img, "io=" + io)
        lines = [Pipeline(server.connect()) for _ in range(nr)]
        for n in range(each):
            for i, line in enumerate(lines):
                line.pwrite(f"w{n}", b"d" * 256 * KiB,
                            (i * each + n) * 512 * KiB)
                line.flush(f"f{n}")
        for line in lines:
            line.all_succeeded()
        m = server.stop()
        trace = read_trace(path)
        hows = trace.hows("flush")
        equal(len(hows), nr * each, "flushes")
        equal(hows.count("led"), m.syncs, "syncs led")
        equal(hows.count("joined"), m.merged, "syncs joined")
        equal(hows.count("clean"), m.clean, "clean flushes")
        check(hows.count("joined") > 0, "nobody joined a sync")
        equal({x["conn"] for x in trace.records}, set(range(1, nr + 1)),
              "connections")
        check_flushes(trace)


@test
def flushes_that_race_with_writes_name_a_sync_that_covers_them(t):
    nr, rounds = 8, 60
    server, path = traced(t, t.image(nr * MiB))

    def client(h, i):
        for n in range(rounds):
            h.pwrite(bytes(4096), i * MiB + n * 4096)
            h.flush()

    in_threads([lambda h=server.connect(), i=i: client(h, i)
                for i in range(nr)])
    server.stop()
    trace = read_trace(path)
    equal(len(trace.of("flush")), nr * rounds, "flushes")
    check_flushes(trace)


@test
def failed_request_has_its_errno(t):
    img = t.image()
    server, path = traced(t, img)
    h = server.connect()
    h.pread(512, 0)
    os.truncate(img, 0)
    fails_with("EIO", h.pread, 512, 0)
    server.stop()
    equal([x["result"] for x in read_trace(path).records],
          [0, -errno.EIO], "results")


@test
def requests_with_o_direct_and_of_a_reader_are_traced(t):
    img = t.image()
    server, path = traced(t, img, nbdkit=["-r"])
    server.connect().pread(512, 0)
    server.stop()
    equal(only(read_trace(path).records)["kind"], "read", "with -r")
    if not takes_direct(img):
        return
    server, path = traced(t, img, "direct=true")
    h = server.connect()
    h.pwrite(b"w" * 100, 7, FUA)  # Reads the rest of its block first.
    h.flush()
    server.stop()
    trace = read_trace(path)
    equal(trace.first["direct"], True, "direct in the first line")
    equal(trace.hows("write"), ["write"], "FUA write")
    write = trace.of("write")[0]
    check(write["start"] <= write["sync"]["submitted"], "its times")


@test
def lines_come_while_the_server_runs(t):
    server, path = traced(t, t.image())
    h = server.connect()
    for n in range(1, 4):
        h.pread(512, 0)
        wait_for(lambda n=n: len(read_trace(path, False).records) == n
                 if read_file(path) else False, f"line {n}")
    server.stop()


@test
def metrics_count_the_lines(t):
    server, path = traced(t, t.image())
    h = server.connect()
    for _ in range(5):
        h.pread(512, 0)
    m = server.stop()
    equal(m("ubd_trace_records_total"), 5, "records")
    equal(m("ubd_trace_dropped_total"), 0, "dropped")
    equal(len(read_trace(path).records), 5, "lines")
    m = t.serve(t.image(name="other.img")).stop()
    equal(m("ubd_trace_records_total"), 0, "records without a trace")


main()
