#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# A person who is not root gets a guest in which they are, and may mount.

from guesttest import *


def test(t):
    need_guest("uml", "nbd")
    need_guest("uml", "vhost")
    need("setpriv")
    folder = t.path("theirs")
    os.mkdir(folder)
    become = []
    if os.geteuid() == 0:
        become = ["setpriv", "--reuid=65534", "--regid=65534",
                  "--clear-groups"]
        os.chown(folder, 65534, 65534)
        os.chmod(t.dir, 0o755)
        for path in SCRIPT, t.plugin, os.environ["UBD_BUILD"]:
            if subprocess.run([*become, "test", "-r", path],
                              check=False).returncode != 0:
                skip("the user nobody cannot read " + path)
        if subprocess.run([*become, "unshare", "-r", "true"],
                          check=False).returncode != 0:
            skip("no user namespaces for everybody")
    for attach in "vhost", "nbd":
        image = os.path.join(folder, attach + ".img")
        p = subprocess.run(
            [*become, SCRIPT, "uml", "--attach", attach, "--disk", image,
             "--create", "16M", "--timeout", str(GUEST_LIMIT), "--run",
             "set -e; id -u; mkfs.ext4 -q $DISK; mount $DISK /mnt; "
             "echo hello >/mnt/f; umount /mnt"],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True,
            stderr=subprocess.PIPE, check=False)
        assert p.returncode == 0 and p.stdout == "0\n", (attach, p)
        out = run("debugfs", "-R", "cat f", image, stderr=subprocess.DEVNULL)
        assert out == "hello\n", (attach, out)


main(test)
