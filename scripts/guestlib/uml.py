# SPDX-License-Identifier: BSD-3-Clause
"""User Mode Linux: a kernel as a program; its root is the host's, read-only."""

import os
import shutil
import subprocess

from . import inside, servers, xstate

MODULES = "/usr/lib/uml/modules"
PREFIX = {"vhost": "/dev/vd", "ubd": "/dev/ubd", "ubds": "/dev/ubd"}


def disk_names(o, number):
    if o.attach == "nbd":
        return ["/dev/nbd%d" % i for i in range(number)]
    return [PREFIX[o.attach] + "abcdefgh"[i] for i in range(number)]


def settings(session):
    session.write("init", inside.UML_INIT.replace("$RUN", session.run_folder))
    return {"HOST": "", "NEW": session.path("new"), "MODULES": MODULES,
            "B": shutil.which("busybox"), "INTERFACE": "vec0"}


def disk_words(o, ends):
    if o.attach == "nbd":
        return ["vec0:transport=tap,ifname=tap0,depth=128,gro=1"] if ends \
            else []
    if o.attach == "vhost":
        return ["virtio_uml.device=%s:2" % end for end in ends]
    flags = ("s" if o.attach == "ubds" else "") + ("r" if o.readonly else "")
    return ["ubd%d%s=%s" % (i, flags, end) for i, end in enumerate(ends)]


def start(session, ends):
    o = session.o
    fds = {name: c.write_end for name, c in session.channels.items()}
    argv = ["linux.uml", "root=/dev/root", "rootfstype=hostfs", "rootflags=/",
            "ro", "init=" + session.path("init"), "mem=%dM" % (o.mem >> 20),
            "quiet", "panic=-1", "con=null", "ssl=null",
            "con0=null,fd:%d" % fds["noise"], "con1=null,fd:%d" % fds["out"],
            "con2=null,fd:%d" % fds["err"],
            "con3=null,fd:%d" % fds["control"]]
    keep = list(fds.values())
    if o.shell:
        # Duplicates: its own standard streams are for its messages.
        terminal = [os.dup(0), os.dup(1)]
        keep += terminal
        argv.append("con4=fd:%d,fd:%d" % tuple(terminal))
    argv += disk_words(o, ends)
    env = dict(os.environ, HOME=session.run_folder, TMPDIR=session.run_folder)
    env.pop("LD_PRELOAD", None)
    if os.environ.get("UBD_UML_XSTATE") == "always" or xstate.is_needed():
        env["LD_PRELOAD"] = xstate.library(o)
        if not os.path.exists(env["LD_PRELOAD"]):
            raise servers.NotStarted(
                "UML needs %s on this processor; please run scripts/build" %
                env["LD_PRELOAD"])
    return subprocess.Popen(argv, cwd=session.run_folder, env=env,
                            stdin=subprocess.DEVNULL, stdout=fds["noise"],
                            stderr=fds["noise"], pass_fds=keep,
                            start_new_session=True)
