#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Where the kernel or a container refuses io_uring, io=auto says so once and
# serves with the same promises, and io=io_uring fails clearly at start.  A
# seccomp filter refuses it here, as containers do.  Guards the probe in
# .get_ready.

import resource

from ubdtest import *

REFUSALS = ("EPERM", "ENOSYS", "ENOMEM", "EACCES")


def rings(server):
    return sum("[io_uring]" in d for d in server.descriptors().values())


@test
def auto_warns_once_and_serves_where_io_uring_is_refused(t):
    for name in REFUSALS[:3]:
        img = t.image()
        server = t.serve(
            img, preexec_fn=refusal_of_io_uring(getattr(errno, name)))
        handles = [server.connect() for _ in range(3)]
        for i, h in enumerate(handles):
            h.pwrite(bytes([i + 1]) * 4096, i * 4096)
            h.flush()
            h.flush()
        for i, h in enumerate(handles):
            same_bytes(h.pread(4096, i * 4096), bytes([i + 1]) * 4096, name)
        equal(rings(server), 0, "rings")
        warnings = [line for line in server.log().splitlines()
                    if "io_uring" in line]
        equal(len(warnings), 1,
              f"{name}: warnings about io_uring in {server.log()!r}")
        m = server.stop()
        equal((m.syncs, m.clean), (3, 3), f"{name}: syncs, clean flushes")
        check(m.find("ubd_info", engine="syscalls"), str(m.find("ubd_info")))


@test
def io_uring_insists_and_fails_clearly_at_start(t):
    img = t.image()
    for name in REFUSALS:
        number = getattr(errno, name)
        out = t.refuse(img, "io=io_uring",
                       preexec_fn=refusal_of_io_uring(number))
        mentions(out, "io_uring", os.strerror(number))


@test
def io_uring_fails_before_going_to_the_background(t):
    t.run(["nbdkit", "-U", t.path("s"), "-P", t.path("p"), plugin(),
           t.image(), "io=io_uring"], status=None,
          preexec_fn=refusal_of_io_uring(errno.EPERM))
    check(not os.path.exists(t.path("p")), "it runs")


@test
def syscalls_uses_no_ring_and_no_warning(t):
    server = t.serve(t.image(), "io=syscalls",
                     preexec_fn=refusal_of_io_uring(errno.EPERM))
    server.connect().pwrite(b"x" * 512, 0)
    equal(rings(server), 0, "rings")
    check("io_uring" not in server.log(), server.log())
    m = server.stop()
    check(m.find("ubd_info", engine="syscalls"), str(m.find("ubd_info")))


@test
def without_locked_memory_it_serves_and_says_which_way(t):
    # Linux 6.18 counts rings as locked memory, and refuses them with ENOMEM to
    # whoever has none and no privilege; not every kernel does.
    need_root("to become nobody")
    need_tool("setpriv")
    uid, gid = nobody()
    img = t.image()
    os.chown(img, uid, gid)
    so = t.path("plugin.so")  # The build may be in root's folder.
    shutil.copyfile(plugin(), so)
    server = t.serve(img, so=so, before=(
        "setpriv", f"--reuid={uid}", f"--regid={gid}", "--clear-groups",
        "--bounding-set=-all", "--inh-caps=-all"),
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_MEMLOCK, (0, 0)))
    limits = read_file(f"/proc/{server.pid}/limits").decode()
    check(re.search(r"^Max locked memory +0 +0 ", limits, re.M), limits)
    handles = [server.connect() for _ in range(3)]
    for i, h in enumerate(handles):
        h.pwrite(bytes([i + 1]) * 4096, i * 4096)
        h.flush()
        same_bytes(h.pread(4096, i * 4096), bytes([i + 1]) * 4096, "data")
    nr_rings = rings(server)
    log = server.log()
    m = server.stop()
    engine = "io_uring" if nr_rings else "syscalls"
    check(m.find("ubd_info", engine=engine), str(m.find("ubd_info")))
    equal("io_uring is refused here" in log, nr_rings == 0, f"the log {log!r}")
    equal((m.syncs, m.flushes), (3, 3), "syncs, flushes")


@test
def io_uring_uses_a_ring(t):
    if "io_uring" not in engines():
        raise Skip("this kernel refuses io_uring")
    server = t.serve(t.image(), "io=io_uring")
    server.connect().pwrite(b"x" * 512, 0)
    check(rings(server) > 0, "no ring")
    m = server.stop()
    check(m.find("ubd_info", engine="io_uring"), str(m.find("ubd_info")))


@test
def auto_uses_io_uring_where_it_can(t):
    if "io_uring" not in engines():
        raise Skip("this kernel refuses io_uring")
    m = t.serve(t.image()).stop()
    check(m.find("ubd_info", engine="io_uring"), str(m.find("ubd_info")))


main()
