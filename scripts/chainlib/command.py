# SPDX-License-Identifier: BSD-3-Clause
"""The command line of scripts/chain."""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys

from guestlib.command import parse_seconds, parse_size

from . import Failed, disks, judge, picture, records, report, run, tracefs

ATTACH = {"uml": ("vhost", "nbd", "ubd", "ubds"),
          "qemu": ("virtio", "nbd", "raw")}
USAGE = "scripts/chain [options] -- CMD..."
NOTES = """
Without --guest, CMD runs on the host, with $NBD_URI and $NBD_SOCKET naming a
server that is there for it; each FLUSH and each write with FUA is a sync.
With --guest it runs in a guest whose disk is $DISK; its fsync, fdatasync,
sync, syncfs and msync calls are the syncs. A CMD of one word is run by a
shell, as here:

  scripts/chain -- 'fio --name=f --ioengine=nbd --uri="$NBD_URI" \\
      --rw=randwrite --fsync=1 --size=1M --output=/dev/null'
  scripts/chain --guest uml --check barrier --html chain.html -- \\
      'mkfs.ext4 -q $DISK && mount $DISK /mnt &&
       dd if=/dev/zero of=/mnt/f bs=64k count=8 conv=fsync'

Exit status: CMD's; with --check 0 if every sync kept the mode's promise and
CMD succeeded, else 1; 2 if nothing could be run. Needs root.
"""


class Parser(argparse.ArgumentParser):
    def error(self, message):  # One line instead of the whole usage.
        self.exit(2, "scripts/chain: %s (try --help)\n" % message)


def _size(text):
    value = parse_size(text)
    if not 16 << 20 <= value <= 1 << 40 or value % 4096:
        raise argparse.ArgumentTypeError(
            "'%s': expected a size from 16M to 1T, such as 256M" % text)
    return value


def _count(text):
    if not re.fullmatch(r"\d{1,6}", text, re.ASCII):
        raise argparse.ArgumentTypeError(
            "'%s': expected a number" % text)
    return int(text)


def _word(text):
    name = text.split("=")[0]
    if not re.match(r"[A-Za-z][A-Za-z0-9._-]*=", text):
        raise argparse.ArgumentTypeError(
            "'%s': expected name=value, as nbdkit takes it" % text)
    if name in ("file", "cache", "trace", "io"):
        raise argparse.ArgumentTypeError(
            "'%s': %s= is set by scripts/chain itself" % (text, name))
    return text


def _parser():
    p = Parser(prog="scripts/chain", usage=USAGE, description="Follows each sync of a guest down to"
               " the flush of the host's disk.",
               epilog=NOTES, allow_abbrev=False,
               formatter_class=argparse.RawDescriptionHelpFormatter)
    add = p.add_argument
    modes = ", ".join(judge.MODES)
    add("--disk", metavar="IMG", help="an image that exists (default: one on"
        " a private disk)")
    add("--private-disk", metavar="FS", choices=disks.PrivateDisk.KINDS,
        help="make the image on an ext4 (default) or xfs of its own, on a loop"
        " device that nobody else uses")
    add("--size", metavar="SIZE", type=_size, help="of the image on a private"
        " disk (default 256M)")
    add("--cache", metavar="MODE", choices=judge.MODES,
        help="the plugin's cache mode (default barrier): " + modes)
    add("--io", metavar="WAY", choices=("auto", "io_uring", "syscalls"),
        help="how the plugin does I/O: auto (default), io_uring, syscalls")
    add("--plugin", metavar="WORD", action="append", default=[], type=_word,
        help="one more name=value for the plugin; may be repeated")
    add("--guest", metavar="KIND", choices=("uml", "qemu"),
        help="run CMD in a guest: uml or qemu")
    add("--attach", metavar="KIND", help="how the guest gets its disk: vhost"
        " (default), nbd, ubd, ubds for uml; virtio (default), nbd, raw for"
        " qemu (ubd, ubds and raw: no server of ours)")
    add("--client-cache", metavar="MODE", choices=(
        "writeback", "writethrough", "none", "unsafe"),
        help="qemu's own cache setting")
    add("--check", metavar="MODE", choices=judge.MODES,
        help="fail unless every sync kept the promise of this mode: " + modes)
    add("--html", metavar="FILE", help="a page with pictures")
    add("--svg", metavar="FILE", help="a picture")
    add("--csv", metavar="FILE", help="a row for each sync")
    add("--show", metavar="N", type=_count, default=3,
        help="timelines to print, of the first and of the slowest (3)")
    add("--timeout", metavar="SEC", type=parse_seconds, default=120.0,
        help="for CMD (default 120)")
    add("--limit", metavar="MIB", type=_count, help="keep at most so much of"
        " the kernel's events (256)", default=tracefs.DEFAULT_LIMIT >> 20)
    add("command", nargs="*", metavar="CMD", help=argparse.SUPPRESS)
    return p


class UserError(Exception):
    """Something the person can put right; the message is one line."""


def _check_words(o):
    if not o.command:
        raise UserError("what to run? expected -- CMD")
    if o.guest:
        o.attach = o.attach or ATTACH[o.guest][0]
        if o.attach not in ATTACH[o.guest]:
            raise UserError("--attach '%s': for %s expected %s" % (
                o.attach, o.guest, ", ".join(ATTACH[o.guest])))
    for name, given in (("--attach", o.attach),
                        ("--client-cache", o.client_cache)):
        if given and not o.guest:
            raise UserError("%s needs --guest" % name)
    if o.attach in run.WITHOUT_SERVER:
        for name, given in (("--cache", o.cache), ("--io", o.io),
                            ("--plugin", o.plugin)):
            if given:
                raise UserError("%s: --attach %s uses no server of ours"
                                % (name, o.attach))
    if o.disk and (o.private_disk or o.size):
        raise UserError("--disk and %s do not go together" % (
            "--private-disk" if o.private_disk else "--size"))


def _check_paths(o):
    if o.disk is not None:
        if not os.path.exists(o.disk):
            raise UserError("--disk: there is no image '%s'" % o.disk)
        if os.path.isdir(o.disk):
            raise UserError("--disk '%s' is a folder" % o.disk)
        o.disk = os.path.realpath(o.disk)
    for name, path in (("--html", o.html), ("--svg", o.svg), ("--csv", o.csv)):
        if path is None:
            continue
        folder = os.path.dirname(os.path.abspath(path))
        if not os.path.isdir(folder) or os.path.isdir(path):
            raise UserError("%s '%s': expected a file in a folder that exists"
                            % (name, path))


def _complete(o, source):
    o.source = source
    o.cache = o.cache or "barrier"
    o.promise = judge.MODES[o.cache]
    o.private_disk = o.private_disk or "ext4"
    o.size = o.size or 256 << 20
    o.limit <<= 20
    one = len(o.command) == 1
    o.command_text = o.command[0] if one else shlex.join(o.command)
    if one:
        o.command = ["/bin/sh", "-c", o.command_text]
    o.guest_words = (["--client-cache", o.client_cache] if o.client_cache
                     else [])
    os.environ["PATH"] += ":/usr/sbin:/sbin"


def _find_plugin(o):
    """Build, unless the environment names a plugin (the tests do that)."""
    o.plugin_file = os.environ.get("UBD_PLUGIN")
    if o.plugin_file:
        o.plugin_file = os.path.realpath(o.plugin_file)
        return
    done = subprocess.run([os.path.join(o.source, "scripts", "build")],
                          stdin=subprocess.DEVNULL, text=True, check=False,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        sys.stderr.write(done.stdout)
        raise UserError("the build failed, see above")
    o.plugin_file = os.path.join(o.source, "plugin.so")


def _write_files(o, outcome, timelines):
    def table(f):
        report.write_csv(f, timelines)

    def drawn(make):
        return lambda f: f.write(make(outcome.run, timelines))

    for name, path, write in (("--html", o.html, drawn(picture.html)),
                              ("--svg", o.svg, drawn(picture.svg)),
                              ("--csv", o.csv, table)):
        if path is None:
            continue
        try:
            with open(path, "w", encoding="utf-8") as f:
                write(f)
        except OSError as e:
            raise UserError("%s '%s': %s" % (name, path, e.strerror)) from None


def _end(o, outcome):
    """Report, and the exit status."""
    found = judge.Judge(outcome.run)
    _write_files(o, outcome, found.timelines)
    sys.stdout.write(report.text(outcome.run, found.timelines, o.show))
    if o.check is None:
        return outcome.status
    reasons = found.check(judge.MODES[o.check])
    if outcome.status != 0:
        reasons.append("the command ended with status %d" % outcome.status)
    print()
    for reason in reasons:
        print("check %s: FAILED: %s" % (o.check, reason))
    if not reasons:
        print("check %s: every one of %d %s syncs kept the promise" % (
            o.check, len(found.timelines), outcome.run.guest_word))
    return 1 if reasons else 0


def _end_on(number, _frame):
    raise SystemExit(128 + number)


def main(source, argv):
    o = _parser().parse_args(argv)
    signal.signal(signal.SIGTERM, _end_on)
    signal.signal(signal.SIGHUP, _end_on)
    try:
        _check_words(o)
        _check_paths(o)
        _complete(o, source)
        _find_plugin(o)
        status = _end(o, run.collect(o))
        sys.stdout.flush()
        return status
    except BrokenPipeError:  # Nobody reads our output any more.
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return 1
    except OSError as e:
        print("scripts/chain: %s%s" % (
            e.filename + ": " if e.filename else "", e.strerror),
            file=sys.stderr)
        return 2
    except (UserError, Failed, records.BadTrace) as e:
        print("scripts/chain: %s" % e, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
