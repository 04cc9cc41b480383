# SPDX-License-Identifier: BSD-3-Clause
"""What serves the disks: nbdkit with our plugin, or one that runs already;
qemu-storage-daemon in front of it; a network with two addresses."""

import ctypes
import os
import signal
import socket
import subprocess
import threading
import time

HOST_ADDRESS, GUEST_ADDRESS = "10.77.0.1", "10.77.0.2"
FIRST_PORT = 10809
SYS_PIDFD_GETFD = 438  # The same number on every architecture.
PATIENCE = 30  # Seconds that a server may take to start or to end.

_libc = ctypes.CDLL(None, use_errno=True)


class NotStarted(Exception):
    """The message says which server and why."""


class Server:
    """One process, whose messages are in a file."""

    def __init__(self, name, argv, folder, cwd, pass_fds=()):
        self.name = name
        self.log = os.path.join(folder, name + ".log")
        self.pidfile = os.path.join(folder, name + ".pid")
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                argv + self.pidfile_words(), cwd=cwd, stdin=subprocess.DEVNULL,
                stdout=log, stderr=log, pass_fds=pass_fds)

    def pidfile_words(self):
        return ["--pidfile", self.pidfile]

    def messages(self):
        with open(self.log, errors="replace", encoding="utf-8") as f:
            return f.read()

    def await_start(self, deadline):
        """Both kinds write their process number once they listen."""
        while not (os.path.exists(self.pidfile) and
                   os.path.getsize(self.pidfile) > 0):
            if self.process.poll() is not None:
                lines = self.messages().strip().splitlines() or ["no message"]
                raise NotStarted("%s did not start: %s" %
                                 (self.name, lines[-1]))
            if time.monotonic() > deadline:
                raise NotStarted("%s did not start in time" % self.name)
            time.sleep(0.003)

    def stop(self):
        """Politely, so that it writes its metrics; then not."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    def kill(self):
        self.process.kill()
        self.process.wait()


def nbdkit(o, folder, number, image):
    """Serve @image; returns (server, socket path or port)."""
    argv = ["nbdkit", "--foreground"]
    if o.readonly:
        argv.append("--readonly")
    if o.attach == "nbd":
        where = FIRST_PORT + number
        argv += ["--ipaddr", HOST_ADDRESS, "--port", str(where)]
    else:
        where = os.path.join(folder, "nbd%d.sock" % number)
        argv += ["--unix", where]
    argv += [o.plugin_file, "file=" + image] + o.plugin
    # In the person's folder: names of files in the words are meant from there.
    return Server("nbdkit-%d" % number, argv, folder, None), where


def cut_connections(process):
    """Of a guest that is gone.  It sent no FIN, so the server would wait for
    its next request for ever; we close the server's sockets from outside.
    """
    folder = "/proc/%d/fd" % process.pid
    for name in os.listdir(folder):
        try:
            if not os.readlink(os.path.join(folder, name)).startswith(
                    "socket:"):
                continue
            fd = _pidfd_getfd(process.pid, int(name))
            with socket.socket(fileno=fd) as s:
                if s.family == socket.AF_INET and \
                   s.getpeername()[0] == GUEST_ADDRESS:
                    s.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # Closed meanwhile, or the listening one, without a peer.


def _pidfd_getfd(pid, number):
    pidfd = os.pidfd_open(pid)
    try:
        fd = _libc.syscall(SYS_PIDFD_GETFD, pidfd, number, 0)
        if fd < 0:
            e = ctypes.get_errno()
            raise OSError(e, os.strerror(e))
        return fd
    finally:
        os.close(pidfd)


def relay(path, port):
    """Make a server on a unix socket reachable at our address and @port."""
    listener = socket.create_server((HOST_ADDRESS, port))

    def copy(source, target):
        try:
            while data := source.recv(1 << 18):
                target.sendall(data)
        except OSError:
            pass
        for s in source, target:
            try:
                s.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def accept():
        while True:
            client, _ = listener.accept()
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server = socket.socket(socket.AF_UNIX)
            try:
                server.connect(path)
            except OSError:
                client.close()
                continue
            for pair in (client, server), (server, client):
                threading.Thread(target=copy, args=pair, daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    return port


def escape(text):
    """A comma separates qemu's options; doubled it is a comma."""
    return text.replace(",", ",,")


def vhost(o, folder, sockets):
    """qemu-storage-daemon; returns (server, its sockets)."""
    argv, ends = ["qemu-storage-daemon"], []
    for i, path in enumerate(sockets):
        end = os.path.join(folder, "vhost%d.sock" % i)
        ends.append(end)
        argv += [
            "--blockdev", "driver=nbd,node-name=disk%d,discard=unmap,"
            "read-only=%s,server.type=unix,server.path=%s" %
            (i, "on" if o.readonly else "off", escape(path)),
            "--export", "type=vhost-user-blk,id=export%d,node-name=disk%d,"
            "addr.type=unix,addr.path=%s,writable=%s" %
            (i, i, end, "off" if o.readonly else "on")]
    return Server("qemu-storage-daemon", argv, folder, folder), ends


def make_network():
    """A tap in our own network namespace; no other address is there."""
    for words in ("link set lo up", "tuntap add dev tap0 mode tap",
                  "addr add %s/24 dev tap0" % HOST_ADDRESS,
                  "link set tap0 up"):
        done = subprocess.run(["ip"] + words.split(), text=True, check=False,
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT)
        if done.returncode != 0:
            raise NotStarted("no network for the guest: 'ip %s': %s" %
                             (words, done.stdout.strip()))
