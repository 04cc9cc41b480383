#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# SIGKILL of the server loses nothing that it acknowledged, in any mode: an
# acknowledged change is in the host's page cache and never only in our process.
# The whole process goes at once, in the middle of many requests.

from ubdtest import *

NR = 400
BLOCK = 4096


def killed_under_load(t, rng, *options):
    img = t.image(NR * BLOCK, name="disk.img")
    server = t.serve(img, *options)
    lines = [Pipeline(server.connect()) for _ in range(2)]
    written = {}
    for n in range(NR):
        line = lines[n % 2]
        flags = nbd.CMD_FLAG_FUA if rng.random() < 0.1 else 0
        written[n] = bytes([n % 255 + 1]) * BLOCK
        line.pwrite(n, written[n], n * BLOCK, flags)
        if n % 50 == 49:
            line.flush(("flush", n))
    lines[0].wait(rng.randrange(1, NR // 4))
    server.kill()
    for line in lines:
        try:
            line.wait()
        except nbd.Error:
            pass  # The connection is gone; that was the idea.
    nr_acknowledged = 0
    content = read_file(img)
    for line in lines:
        for key, result in line.results.items():
            if result == 0 and isinstance(key, int):
                nr_acknowledged += 1
                same_bytes(content[key * BLOCK:(key + 1) * BLOCK],
                           written[key], f"{options}: acknowledged {key}")
    check(nr_acknowledged > 0, f"{options}: nothing was acknowledged")
    for n in range(NR):  # The others are old, new, or cut at a sector.
        block = content[n * BLOCK:(n + 1) * BLOCK]
        check(set(block) <= {0, n % 255 + 1}, f"{options}: block {n}")


@test
def a_killed_server_loses_nothing_acknowledged(t):
    seed = int(os.environ.get("UBD_SEED", "0")) or random.randrange(1 << 32)
    print(f"  UBD_SEED={seed}")
    rng = random.Random(seed)
    for mode in MODES:
        for io in engines():
            for _ in range(3):
                killed_under_load(t, rng, "cache=" + mode, "io=" + io)
    if takes_direct(t.image(name="probe.img")):
        killed_under_load(t, rng, "direct=true")


@test
def a_killed_server_loses_no_acknowledged_zero_or_trim(t):
    for mode in MODES:
        img = t.image(data=pattern(MiB))
        server = t.serve(img, "cache=" + mode)
        h = server.connect()
        h.zero(100001, 12345)
        h.trim(256 * KiB, 512 * KiB)
        after = h.pread(MiB, 0)
        server.kill()
        same_bytes(read_file(img), after, f"cache={mode}")


@test
def a_server_can_start_again_after_it_was_killed(t):
    img = t.image()
    server = t.serve(img)
    server.connect().pwrite(b"a" * 4096, 0)
    server.kill()
    server = t.serve(img)
    h = server.connect()
    same_bytes(h.pread(4096, 0), b"a" * 4096, "content")
    h.flush()
    equal(server.stop().syncs, 1, "the first flush syncs (D6)")


main()
