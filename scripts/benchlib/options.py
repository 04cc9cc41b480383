# SPDX-License-Identifier: BSD-3-Clause
"""Arguments, and the frame that cleans up, of programs that measure."""

import argparse
import os
import shutil
import signal
import sys
import tempfile

from . import servers


class Parser(argparse.ArgumentParser):
    def error(self, message):  # One line instead of the whole usage.
        name = os.path.basename(self.prog)
        self.exit(2, "%s: %s (see %s --help)\n" % (name, message, self.prog))


def parse_positive(kind, most):
    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = 0
        if not 0 < value <= most:
            raise argparse.ArgumentTypeError(
                "'%s': expected a number above 0, at most %d" % (text, most))
        return value
    return parse


def parse_server(text):
    try:
        return servers.custom(text)
    except ValueError as e:
        raise argparse.ArgumentTypeError(str(e)) from None


def pick(parser, option, text, known):
    """The entries of @known that the comma list @text names."""
    names = [n.strip() for n in text.split(",") if n.strip()]
    for name in names:
        if name not in known:
            parser.error("%s: unknown name '%s', expected one of %s"
                         % (option, name, " ".join(known)))
    if not names:
        parser.error("%s: no name given" % option)
    return [known[n] for n in dict.fromkeys(names)]


def copy_plugin(path, folder):
    """The path of our own copy: somebody may build while we measure."""
    if not os.path.exists(path):
        return path  # Who needs it says so.
    copy = os.path.join(folder, os.path.basename(os.path.realpath(path)))
    return shutil.copy(path, copy)


def interrupted(signum, _frame):
    raise KeyboardInterrupt(signum)


def add_common(parser, source):
    """The options that every such program has."""
    parser.add_argument("--server", metavar="NAME=WORDS", action="append",
                        type=parse_server, default=[],
                        help="one more row of ours with these plugin words; "
                        "words that start with '-' go to nbdkit itself, and "
                        "plugin=PATH is another build, to compare two")
    parser.add_argument("--rounds", metavar="N",
                        type=parse_positive(int, 1000))
    parser.add_argument("--dir", help="folder for the image, on the disk to "
                        "measure; default: a private one beside build/")
    parser.add_argument("--plugin", default=os.environ.get("UBD_PLUGIN")
                        or os.path.join(source, "plugin.so"),
                        help="default: plugin.so of this source")


def check_dir(parser, args):
    if args.dir and not os.path.isdir(args.dir):
        parser.error("--dir: '%s' is not a folder" % args.dir)


def framed(name, args, source, run):
    """The exit status of @run(folder, image_folder), after which nothing is
    left: no process, and neither of the two private folders.
    """
    servers.setup_process(getattr(args, "one_session", False))
    for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(s, interrupted)
    # Sockets have to live under a short path; the image on a real disk.
    folder = tempfile.mkdtemp(prefix="ubd-bench-")
    image_folder = None
    try:
        args.plugin = copy_plugin(args.plugin, folder)
        image_folder = tempfile.mkdtemp(prefix="bench-tmp-",
                                        dir=os.path.abspath(args.dir
                                                            or source))
        return run(folder, image_folder)
    except (servers.Failed, OSError) as e:
        sys.stderr.write("%s: %s\n" % (name, e))
        return 1
    except KeyboardInterrupt as e:
        sys.stderr.write("\n%s: interrupted\n" % name)
        return 128 + (e.args[0] if e.args else signal.SIGINT)
    finally:
        for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(s, signal.SIG_IGN)
        servers.sweep()
        for path in (folder, image_folder):
            if path:
                shutil.rmtree(path, ignore_errors=True)
