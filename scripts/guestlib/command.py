# SPDX-License-Identifier: BSD-3-Clause
"""The command line of scripts/guest, and what must be there before a start."""

import argparse
import os
import re
import shutil
import subprocess
import sys

from . import sandbox, session

UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
ATTACH = {"uml": ("vhost", "nbd", "ubd", "ubds"),
          "qemu": ("virtio", "nbd", "raw")}
WITHOUT_SERVER = ("ubd", "ubds", "raw")
CLIENT_CACHE = ("writeback", "writethrough", "none", "unsafe")
TOOLS = {"uml": ("linux.uml", "busybox"),
         "qemu": ("qemu-system-x86_64", "busybox"),
         "vhost": ("qemu-storage-daemon",), "nbd": ("ip", "nbd-client")}
USAGE = "scripts/guest uml|qemu [--disk IMG]... [--run CMD... | --shell] ..."
NOTES = """
In the guest the host's files are there to be read; /tmp, /run, /mnt, /root,
/var/tmp and /share are its own. CMD is run by sh as root, in /, with the disks
as $DISK, $DISK2, ..., and its output and exit status become those of
scripts/guest. When CMD has ended the guest's power is cut: what it has neither
synced nor unmounted may be missing on its disks.

Exit status: CMD's; 124 if the time was up, 125 if the guest died, could not
be started or could not attach its disks, 2 for a wrong command line.

  scripts/guest uml --disk d.img --create 1G \\
      --run 'mkfs.ext4 -q $DISK && mount $DISK /mnt && df -h /mnt; umount /mnt'
  scripts/guest qemu --disk d.img --cache osync --shell
"""


class UserError(Exception):
    """Something the person can put right; the message is one line."""


class Parser(argparse.ArgumentParser):
    def error(self, message):  # One line instead of the whole usage.
        self.exit(2, "scripts/guest: %s (try --help)\n" % message)


def parse_size(text):
    match = re.fullmatch(r"(\d{1,15})([kmgt]?)", text, re.I | re.A)
    size = 0
    if match:
        size = int(match[1]) << UNITS[match[2].lower()]
    if not 0 < size < 1 << 63:
        raise argparse.ArgumentTypeError(
            "'%s': expected a size such as 512M or 2G" % text)
    return size


def parse_seconds(text):
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(
            "'%s': expected seconds, more than 0" % text)
    return value


def parse_word(text):
    if not re.match(r"[A-Za-z][A-Za-z0-9._-]*=", text):
        raise argparse.ArgumentTypeError(
            "'%s': expected name=value, as nbdkit takes it" % text)
    if text.startswith("file="):
        raise argparse.ArgumentTypeError(
            "'%s': the image is given with --disk" % text)
    return text


def make_parser():
    p = Parser(prog="scripts/guest", usage=USAGE, description=__doc__,
               epilog=NOTES, allow_abbrev=False,
               formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("kind", metavar="uml|qemu", choices=("uml", "qemu"),
                   help="which guest")
    add = p.add_argument
    add("--disk", metavar="IMG", action="append", default=[],
        help="a disk image; may be repeated")
    add("--create", metavar="SIZE", type=parse_size,
        help="make the images first, sparse and this long; one that exists "
             "is left alone, and that is an error")
    add("--readonly", action="store_true", help="read-only disks")
    add("--attach", metavar="KIND",
        help="uml: vhost (default; virtio disk through qemu-storage-daemon), "
             "nbd (the guest's own nbd client), ubd or ubds (UML's native "
             "disk, and with O_SYNC; no server). qemu: virtio (default), "
             "nbd, raw (no server)")
    add("--cache", metavar="MODE", help="the plugin's cache mode")
    add("--plugin", metavar="WORD", action="append", default=[],
        type=parse_word, help="one more name=value for the plugin, such as "
        "metrics=FILE; may be repeated")
    add("--client-cache", metavar="MODE", choices=CLIENT_CACHE,
        help="qemu's own cache setting: " + ", ".join(CLIENT_CACHE))
    add("--socket", metavar="PATH", action="append", default=[],
        help="a disk of a server that listens there already; may be "
             "repeated, and goes instead of --disk")
    add("--run", metavar="CMD", action="append", default=[],
        help="what to run; of several each runs if those before succeeded")
    add("--keep-going", action="store_true",
        help="run the later CMDs although one failed; its status counts")
    add("--shell", action="store_true", help="an interactive shell (default "
        "on a terminal)")
    add("--share", metavar="DIR", help="a folder of the host, writable, at "
        "/share in the guest")
    add("--mem", metavar="SIZE", type=parse_size, help="the guest's memory "
        "(default 256M for uml, 512M for qemu)")
    add("--timeout", metavar="SEC", type=parse_seconds,
        help="end the guest after that time (default 120; none with --shell)")
    add("--verbose", action="store_true",
        help="the guest's and the servers' messages, on stderr")
    return p


# ---- Do the words go together? ----

def check_words(o):
    if o.attach is None:
        o.attach = ATTACH[o.kind][0]
    if o.attach not in ATTACH[o.kind]:
        raise UserError("--attach '%s': for %s expected %s" % (
            o.attach, o.kind, ", ".join(ATTACH[o.kind])))
    if o.run and o.shell:
        raise UserError("--run and --shell do not go together")
    if not o.run and not o.shell:
        if not sys.stdin.isatty():
            raise UserError("what to run? expected --run CMD or --shell")
        o.shell = True
    if o.shell and not sys.stdin.isatty():
        raise UserError("--shell needs a terminal; use --run CMD")
    check_disk_words(o)
    if o.timeout is None and not o.shell:
        o.timeout = 120.0
    if o.mem is None:
        o.mem = (256 if o.kind == "uml" else 512) << 20
    least = (64 if o.kind == "uml" else 256) << 20
    if o.mem < least:
        raise UserError("--mem %d: expected at least %dM" %
                        (o.mem, least >> 20))


def check_disk_words(o):
    native = o.attach in WITHOUT_SERVER
    if o.socket and o.disk:
        raise UserError("--socket and --disk do not go together")
    if native and o.socket:
        raise UserError("--socket: --attach %s uses no server" % o.attach)
    for name, given in (("--cache", o.cache), ("--plugin", o.plugin)):
        if given and native:
            raise UserError("%s: --attach %s uses no server" %
                            (name, o.attach))
        if given and not o.disk:
            raise UserError("%s needs --disk" % name)
    for name, given in (("--create", o.create), ("--client-cache",
                                                 o.client_cache)):
        if given and not (o.disk or o.socket):
            raise UserError("%s needs --disk" % name)
    if o.create and o.socket:
        raise UserError("--create needs --disk")
    if o.create and o.readonly:
        raise UserError("--create and --readonly do not go together")
    if o.client_cache and o.attach not in ("raw", "virtio"):
        raise UserError("--client-cache is a setting of qemu's: expected "
                        "qemu --attach raw or virtio")
    if len(o.disk) > 8 or len(o.socket) > 8:
        raise UserError("at most 8 disks")
    if o.cache is not None:
        o.plugin = ["cache=" + o.cache] + o.plugin


def check_paths(o):
    """Make them absolute, so that they mean the same from any folder."""
    if len({os.path.realpath(d) for d in o.disk}) != len(o.disk):
        raise UserError("--disk: the same image twice")
    for image in o.disk:
        exists = os.path.lexists(image)
        if o.create and exists:
            raise UserError("--create: '%s' exists already and was left as "
                            "it is" % image)
        if not o.create and not os.path.exists(image):
            raise UserError("there is no image '%s'; to make one: "
                            "--create 1G" % image)
        if os.path.isdir(image):
            raise UserError("--disk '%s' is a folder" % image)
        folder = os.path.dirname(os.path.abspath(image))
        if not os.path.isdir(folder):
            raise UserError("there is no folder '%s' for the image" % folder)
    for path in o.socket:
        if not os.path.exists(path):
            raise UserError("--socket '%s': nothing is there" % path)
    if o.share is not None and not os.path.isdir(o.share):
        raise UserError("--share '%s': expected a folder" % o.share)
    o.disk = [os.path.abspath(d) for d in o.disk]
    o.socket = [os.path.abspath(s) for s in o.socket]
    if o.share is not None:
        o.share = os.path.abspath(o.share)


# ---- What must be there ----

def run_quietly(*argv):
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise UserError("this failed: " + " ".join(argv))


def install_what_is_missing(o):
    os.environ["PATH"] += ":/usr/sbin:/sbin"
    wanted = TOOLS[o.kind] + TOOLS.get(o.attach, ())
    if any(shutil.which(tool) is None for tool in wanted):
        print("scripts/guest: installing Debian packages", file=sys.stderr)
        run_quietly(os.path.join(o.source, "scripts/deps"), "test")
    for tool in wanted:
        if shutil.which(tool) is None:
            raise UserError("%s is not installed (scripts/deps test)" % tool)


def find_plugin(o):
    """Build, unless the environment names a plugin (the tests do that)."""
    o.plugin_file = os.environ.get("UBD_PLUGIN")
    o.build = os.environ.get("UBD_BUILD") or os.path.join(o.source, "build")
    if not o.plugin_file:
        run_quietly(os.path.join(o.source, "scripts/build"))
        o.plugin_file = os.path.join(o.source, "plugin.so")
    o.plugin_file = os.path.realpath(o.plugin_file)


def create_images(o):
    """Returns those that were made."""
    made = []
    try:
        for image in o.disk if o.create else []:
            fd = os.open(image, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o644)
            made.append(image)
            os.ftruncate(fd, o.create)
            os.fsync(fd)
            os.close(fd)
    except OSError as e:
        remove_images(made)
        raise UserError("cannot create '%s': %s" % (image, e.strerror)) \
            from None
    return made


def remove_images(made):
    for image in made:
        os.unlink(image)


def main(source, argv):
    o = make_parser().parse_args(argv)
    o.source = source
    try:
        check_words(o)
        check_paths(o)
        install_what_is_missing(o)
        find_plugin(o)
        o.made = create_images(o)
    except UserError as e:
        print("scripts/guest: %s" % e, file=sys.stderr)
        return 2
    try:
        return sandbox.run(lambda: session.run(o), o)
    except sandbox.Refused as e:
        remove_images(o.made)
        print("scripts/guest: %s" % e, file=sys.stderr)
        return 125
