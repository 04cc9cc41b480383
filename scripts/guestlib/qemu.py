# SPDX-License-Identifier: BSD-3-Clause
"""qemu with Debian's kernel, a small initramfs, and the host's files by 9p."""

import os
import subprocess

from . import initramfs, inside, servers

# What qemu's cache= means: (write-cache of the device, direct, no-flush).
CACHES = {"writeback": ("on", "off", "off"),
          "writethrough": ("off", "off", "off"),
          "none": ("on", "on", "off"),
          "unsafe": ("on", "off", "on")}

# A third of the time of a boot without KVM goes into these.
QUICK_BOOT = ("mitigations=off cryptomgr.notests tsc=reliable audit=0 lsm= "
              "random.trust_cpu=on")


def disk_names(o, number):
    if o.attach == "nbd":
        return ["/dev/nbd%d" % i for i in range(number)]
    return ["/dev/vd" + "abcdefgh"[i] for i in range(number)]


def settings(session):
    session.write("init", inside.QEMU_INIT)
    return {"HOST": "/host", "NEW": "/new", "MODULES": "", "B": "/bin/busybox",
            "INTERFACE": "eth0"}


def channel_words(session, fds):
    words = ["-device", "virtio-serial-pci"]
    for name in ("out", "err", "control"):
        words += ["-chardev", "file,id=%s,path=/dev/fd/%d" % (name, fds[name]),
                  "-device", "virtconsole,chardev=" + name]
    if session.o.shell:
        words += ["-chardev", "stdio,id=shell,signal=off",
                  "-device", "virtconsole,chardev=shell"]
    return words + ["-chardev", "file,id=noise,path=/dev/fd/%d" % fds["noise"],
                    "-serial", "chardev:noise"]


def disk_words(o, ends):
    if o.attach == "nbd":
        return ["-netdev", "tap,id=net,ifname=tap0,script=no,downscript=no",
                "-device", "virtio-net-pci,netdev=net,romfile="] if ends \
            else []
    cache, direct, no_flush = CACHES[o.client_cache or "writeback"]
    words = []
    for i, end in enumerate(ends):
        common = ("node-name=disk%d,discard=unmap,read-only=%s,"
                  "cache.direct=%s,cache.no-flush=%s" %
                  (i, "on" if o.readonly else "off", direct, no_flush))
        if o.attach == "raw":
            words += ["-blockdev", "driver=raw,%s,file.driver=%s,"
                      "file.filename=%s" % (common, file_driver(end), end)]
        else:
            words += ["-blockdev", "driver=nbd,%s,server.type=unix,"
                      "server.path=%s" % (common, servers.escape(end))]
        words += ["-device", "virtio-blk-pci,drive=disk%d,write-cache=%s" %
                  (i, cache)]
    return words


def file_driver(path):
    return "file" if os.path.isfile(path) else "host_device"


def share_words(o, session):
    words = ["-virtfs", "local,path=/,mount_tag=host,security_model=none,"
             "readonly=on,multidevs=remap"]
    if o.share:
        words += ["-virtfs", "local,path=%s,mount_tag=share,"
                  "security_model=none,multidevs=remap" %
                  session.path("share")]
    return words


def start(session, ends):
    o = session.o
    kernel, first_root = initramfs.prepare(o, session.run_folder)
    fds = {name: c.write_end for name, c in session.channels.items()}
    # TCG also where /dev/kvm can be opened: that one may abort qemu (nested
    # virtualization), and a guest should behave alike everywhere.
    argv = ["qemu-system-x86_64", "-accel", "tcg", "-cpu", "max",
            "-machine", "q35", "-m", "%dM" % (o.mem >> 20), "-nodefaults",
            "-no-user-config", "-display", "none", "-monitor", "none",
            "-no-reboot", "-kernel", kernel, "-initrd", first_root,
            "-append", "console=ttyS0 quiet panic=-1 rdinit=/init %s "
            "ubd.run=%s" % (QUICK_BOOT, session.run_folder)]
    argv += channel_words(session, fds) + share_words(o, session)
    argv += disk_words(o, ends)
    streams = {"stdin": subprocess.DEVNULL, "stdout": fds["noise"]}
    if o.shell:
        streams = {}
    return subprocess.Popen(argv, cwd=session.run_folder, stderr=fds["noise"],
                            pass_fds=list(fds.values()), **streams,
                            start_new_session=True)
