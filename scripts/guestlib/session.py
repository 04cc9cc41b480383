# SPDX-License-Identifier: BSD-3-Clause
"""Inside the namespaces: start servers and guest, pass on what it prints."""

import os
import selectors
import shutil
import sys
import time

from . import inside, qemu, sandbox, servers, uml

# Folders that exist everywhere and that hardly anybody needs; one of them is
# covered by a tmpfs of ours.  A short name without special characters: for
# sockets (107 bytes) and a kernel's command line.
RUN_FOLDERS = ("/media", "/srv", "/opt", "/mnt", "/home")
NO_STATUS, TIME_IS_UP, BAD_PIPE = 125, 124, 141
GUESTS = {"uml": uml, "qemu": qemu}


def say(*words):
    print("scripts/guest:", *words, file=sys.stderr, flush=True)


class Failed(Exception):
    """The guest did not come to an end; the message says why."""

    def __init__(self, message, status=NO_STATUS):
        super().__init__(message)
        self.status = status


def choose_run_folder(paths):
    for folder in RUN_FOLDERS:
        if os.path.isdir(folder) and not any(
                os.path.commonpath((folder, p)) == folder for p in paths):
            return folder
    raise Failed("all of %s are in use" % " ".join(RUN_FOLDERS))


def paths_in_use(o):
    paths = o.disk + o.socket + [o.source, o.build, o.plugin_file, os.getcwd()]
    if o.share:
        paths.append(o.share)
    return paths + [os.path.realpath(p) for p in paths]


class Channel:
    """A pipe from the guest to one of our own streams, or to a function."""

    def __init__(self, take):
        self.take = take
        self.read_end, self.write_end = os.pipe()
        os.set_blocking(self.read_end, False)

    def move(self):
        """False at the end."""
        try:
            data = os.read(self.read_end, 1 << 16)
        except BlockingIOError:
            return True
        if data:
            self.take(data)
        return bool(data)

    def drain(self):
        try:
            while data := os.read(self.read_end, 1 << 16):
                self.take(data)
        except BlockingIOError:
            pass


def write_all(fd, data):
    while data:
        data = data[os.write(fd, data):]


class Session:
    def __init__(self, o):
        self.o = o
        self.deadline = time.monotonic() + (o.timeout or 1e9)
        self.run_folder = choose_run_folder(paths_in_use(o))
        self.noise = bytearray()  # The guest's console; its last part.
        self.control = b""
        self.servers = []
        self.guest = None
        self.channels = {
            "out": Channel(lambda data: write_all(1, data)),
            "err": Channel(lambda data: write_all(2, data)),
            "control": Channel(self.take_control),
            "noise": Channel(self.take_noise)}

    def take_control(self, data):
        self.control += data

    def take_noise(self, data):
        if self.o.verbose:
            write_all(2, data)
        else:
            self.noise = (self.noise + data)[-16384:]

    def path(self, name):
        return os.path.join(self.run_folder, name)

    def write(self, name, text):
        with open(self.path(name), "w", encoding="utf-8") as f:
            f.write(text)
        os.chmod(self.path(name), 0o755)

    # ---- Start ----

    def start_servers(self):
        """Returns what the guest attaches to: sockets, or files."""
        o = self.o
        if o.attach == "nbd" and (o.disk or o.socket):
            servers.make_network()
        if o.attach in ("ubd", "ubds", "raw"):
            ends = []
            for i, image in enumerate(o.disk):
                ends.append(self.path("disk%d" % i))
                os.symlink(image, ends[-1])
            return ends
        ends = [self.short(i, path) for i, path in enumerate(o.socket)]
        if o.attach == "nbd":
            ends = [servers.relay(path, servers.FIRST_PORT + i)
                    for i, path in enumerate(ends)]
        patience = time.monotonic() + servers.PATIENCE
        for i, image in enumerate(o.disk):
            server, end = servers.nbdkit(o, self.run_folder, i, image)
            self.servers.append(server)
            ends.append(end)
        for server in self.servers:
            server.await_start(patience)
        if o.attach == "vhost" and ends:
            daemon, ends = servers.vhost(o, self.run_folder, ends)
            self.servers.append(daemon)
            daemon.await_start(patience)
        return ends

    def short(self, number, path):
        """A socket's path may have 107 bytes; a link to it is short."""
        link = self.path("given%d.sock" % number)
        os.symlink(path, link)
        return link

    def prepare(self):
        o = self.o
        sandbox.mount("tmpfs", self.run_folder, "tmpfs", sandbox.MS_NOSUID |
                      sandbox.MS_NODEV, "mode=755")
        os.mkdir(self.path("new"))
        if o.share:
            os.symlink(o.share, self.path("share"))
        for i, words in enumerate(o.run):
            self.write("command%d" % i, words + "\n")
        self.write("stage", inside.STAGE)
        size = os.get_terminal_size(0) if o.shell else (80, 24)
        nr_disks = len(o.disk) or len(o.socket)
        names = GUESTS[o.kind].disk_names(o, nr_disks)
        values = {
            "RUN": self.run_folder, "DISKS": " ".join(names),
            "ATTACH": o.attach if names else "none",
            "NR_COMMANDS": len(o.run),
            "KEEP_GOING": "yes" if o.keep_going else "no",
            "SHARED": "yes" if o.share else "",
            "WRITE_BACK": "yes" if o.attach == "vhost" and not o.readonly
            else "no",
            "HOST_ADDRESS": servers.HOST_ADDRESS,
            "GUEST_ADDRESS": servers.GUEST_ADDRESS,
            "FIRST_PORT": servers.FIRST_PORT,
            "TERMINAL": os.environ.get("TERM", "dumb"),
            "WIDTH": size[0] or 80, "ROWS": size[1] or 24}
        values.update(GUESTS[o.kind].settings(self))
        self.write("settings", inside.settings(values))

    # ---- While it runs ----

    def step(self, selector):
        left = self.deadline - time.monotonic()
        if left <= 0:
            raise Failed("the time is up, %g s" % self.o.timeout, TIME_IS_UP)
        for key, _ in selector.select(min(left, 3600)):
            if isinstance(key.data, Channel):
                if not key.data.move():
                    selector.unregister(key.fd)
            elif key.data == "guest":
                return False
            else:
                selector.unregister(key.fd)
                say("%s ended early: %s" % (
                    key.data.name,
                    key.data.messages().strip() or "no message"))
        return True

    def follow(self):
        """Until it reports the status of the command; returns that."""
        selector = selectors.DefaultSelector()
        for channel in self.channels.values():
            os.close(channel.write_end)
            selector.register(channel.read_end, selectors.EVENT_READ, channel)
        selector.register(os.pidfd_open(self.guest.pid),
                          selectors.EVENT_READ, "guest")
        for server in self.servers:
            selector.register(os.pidfd_open(server.process.pid),
                              selectors.EVENT_READ, server)
        while b"\n" not in self.control:
            if not self.step(selector):
                for channel in self.channels.values():
                    channel.drain()
                if b"\n" not in self.control:
                    raise Failed("the guest ended before the command did")
        # Reported last, so all that was printed is in the pipes by now.
        for channel in self.channels.values():
            channel.drain()
        word, _, rest = self.control.split(b"\n")[0].decode().partition(" ")
        if word != "status":
            raise Failed(rest.strip() or "the guest sent nonsense")
        return int(rest)

    def stop(self):
        """As if the guest's power was cut, and then the servers' turn.

        qemu-storage-daemon is killed as well: ended politely it would send a
        flush that the guest never asked for.
        """
        if self.guest:
            self.guest.kill()
            self.guest.wait()
        for server in reversed(self.servers):
            if server.name == "qemu-storage-daemon":
                server.kill()
            else:
                if self.o.attach == "nbd" and server.process.poll() is None:
                    servers.cut_connections(server.process)
                server.stop()
            if self.o.verbose:
                sys.stderr.write(server.messages())

    def explain(self, failure):
        noise = self.noise.decode(errors="replace").strip()
        if noise:
            lines = noise.replace("\r", "").splitlines()[-40:]
            print("\n".join("  | " + line for line in lines), file=sys.stderr)
        say(failure)

    def run(self):
        try:
            self.prepare()
            ends = self.start_servers()
            self.guest = GUESTS[self.o.kind].start(self, ends)
            return self.follow()
        except BrokenPipeError:
            return BAD_PIPE  # Nobody reads our output any more.
        except (Failed, servers.NotStarted) as e:
            self.explain(e)
            if self.guest is None:  # Then nobody has used the new images.
                for image in self.o.made:
                    os.unlink(image)
            return getattr(e, "status", NO_STATUS)
        finally:
            self.stop()


def need(tool):
    path = shutil.which(tool)
    if path is None:
        raise Failed("%s is not installed" % tool)
    return path


def run(o):
    return Session(o).run()
