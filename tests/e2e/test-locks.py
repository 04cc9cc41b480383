#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# Nobody else writes an image that we serve, and we serve none that somebody
# else writes; readers may share.  Guards the OFD lock: exclusive when writable,
# shared when read-only, and understood by qemu both ways.

import fcntl

from ubdtest import *


class Qemu:
    """qemu-io with an image open, for as long as the test lasts."""

    def __init__(self, t, img, *options):
        self.process = t.start(
            [need_tool("qemu-io"), "-f", "raw", *options, img],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT)
        # Its answer shows that the image is open.
        answer = self.ask("read 0 512\n", "512/512")
        check("read 512/512" in answer, f"qemu-io: {answer!r}")

    def ask(self, command, until):
        self.process.stdin.write(command.encode())
        self.process.stdin.flush()
        seen = ""
        end = time.monotonic() + PATIENCE
        while until not in seen:
            left = end - time.monotonic()
            ready, _, _ = select.select([self.process.stdout], [], [],
                                        max(0, left))
            check(ready, f"qemu-io does not answer: {seen!r}")
            part = os.read(self.process.stdout.fileno(), 4096).decode()
            if not part:
                break
            seen += part
        return seen

    def quit(self):
        self.process.stdin.write(b"quit\n")
        self.process.stdin.close()
        equal(self.process.wait(PATIENCE), 0, "exit status of qemu-io")


def locked_out(t, img, *args, **kwargs):
    out = t.refuse(img, *args, **kwargs)
    mentions(out, os.path.basename(img), "lock")
    check("lock=false" in out or "in use" in out or "another" in out,
          f"does not say what to do or why: {out!r}")
    return out


@test
def a_second_writer_is_refused(t):
    img = t.image(data=pattern(4096))
    first = t.serve(img)
    locked_out(t, img)
    locked_out(t, img, "io=syscalls")
    if takes_direct(img):
        locked_out(t, img, "direct=true")
    h = first.connect()
    h.pwrite(b"x" * 4096, 0)  # The first one is none the worse.
    first.stop()
    t.serve(img).stop()  # And the lock ends with it.


@test
def direct_locks_as_well(t):
    # The file is opened a second time for O_DIRECT; the lock must stay.
    img = t.image()
    if not takes_direct(img):
        raise Skip("this file system refuses O_DIRECT")
    server = t.serve(img, "direct=true")
    locked_out(t, img)
    locked_out(t, img, nbdkit=("-r",))
    server.stop()
    t.serve(img, "direct=true", nbdkit=("-r",))
    locked_out(t, img)


@test
def a_reader_is_refused_while_there_is_a_writer(t):
    img = t.image()
    t.serve(img)
    locked_out(t, img, nbdkit=("-r",))


@test
def a_writer_is_refused_while_there_is_a_reader(t):
    img = t.image()
    t.serve(img, nbdkit=("-r",))
    locked_out(t, img)


@test
def two_readers_share(t):
    img = t.image(data=pattern(4096))
    servers = [t.serve(img, nbdkit=("-r",)) for _ in range(2)]
    for server in servers:
        same_bytes(server.connect().pread(4096, 0), pattern(4096), "read")
        server.stop()


@test
def the_lock_is_on_the_file_and_not_on_its_name(t):
    img = t.image()
    os.link(img, t.path("other-name.img"))
    t.serve(img)
    locked_out(t, t.path("other-name.img"))


@test
def many_connections_to_one_server_are_fine(t):
    server = t.serve(t.image())
    handles = [server.connect() for _ in range(20)]
    for i, h in enumerate(handles):
        check(h.can_multi_conn(), "multi-conn is not advertised")
        h.pwrite(bytes([i]) * 512, i * 512)
    # A classic POSIX lock would vanish with the first descriptor closed.
    for h in handles[1:]:
        server.disconnect(h)
    locked_out(t, t.path("disk.img"))
    server.stop()


@test
def a_killed_server_leaves_no_lock(t):
    img = t.image()
    t.serve(img).kill()
    t.serve(img).stop()


@test
def lock_false_takes_and_respects_none(t):
    img = t.image()
    first = t.serve(img)
    second = t.serve(img, "lock=false")
    first.connect().pwrite(b"a" * 512, 0)
    same_bytes(second.connect().pread(512, 0), b"a" * 512, "read")
    first.stop()
    t.serve(img).stop()  # The second one holds nothing.


@test
def a_process_with_a_posix_lock_is_respected(t):
    # What UML takes: fcntl, whole file.
    img = t.image()
    with open(img, "r+b") as f:
        fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        locked_out(t, img)
        locked_out(t, img, nbdkit=("-r",))
        fcntl.lockf(f, fcntl.LOCK_UN)
        server = t.serve(img)
        try:
            fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            pass
        else:
            raise Failure("somebody else could lock the served image")
        server.stop()


@test
def qemu_is_refused_while_we_serve(t):
    img = t.image()
    qemu = [need_tool("qemu-io"), "-f", "raw"]
    server = t.serve(img)
    for options in ([], ["-r"]):
        out = t.run([*qemu, *options, "-c", "read 0 512", img], status=None)
        mentions(out, "lock")
    server.stop()
    t.run([*qemu, "-c", "write 0 512", img])


@test
def we_are_refused_while_qemu_writes(t):
    img = t.image()
    qemu = Qemu(t, img)
    locked_out(t, img)
    locked_out(t, img, nbdkit=("-r",))
    t.serve(img, "lock=false").stop()
    qemu.quit()
    t.serve(img).stop()


@test
def a_qemu_that_reads_keeps_our_writer_out_and_lets_our_reader_in(t):
    img = t.image()
    qemu = Qemu(t, img, "-r")
    locked_out(t, img)
    server = t.serve(img, nbdkit=("-r",))
    equal(len(server.connect().pread(4096, 0)), 4096, "bytes read")
    server.stop()
    qemu.quit()


@test
def our_reader_keeps_a_qemu_that_writes_out_and_lets_its_reader_in(t):
    img = t.image()
    qemu = [need_tool("qemu-io"), "-f", "raw"]
    server = t.serve(img, nbdkit=("-r",))
    t.run([*qemu, "-r", "-c", "read 0 512", img])
    out = t.run([*qemu, "-c", "write 0 512", img], status=None)
    mentions(out, "lock")
    server.stop()
    t.run([*qemu, "-c", "write 0 512", img])


@test
def qemu_img_does_not_copy_an_image_that_we_write(t):
    img = t.image()
    convert = [need_tool("qemu-img"), "convert", "-f", "raw", "-O", "raw",
               img, t.path("copy")]
    server = t.serve(img)
    mentions(t.run(convert, status=None), "lock")
    server.stop()
    t.serve(img, nbdkit=("-r",))
    t.run(convert)


@test
def a_locked_block_device_is_refused(t):
    device = t.loop(t.image())
    server = t.serve(device.path)
    locked_out(t, device.path)
    server.stop()


main()
