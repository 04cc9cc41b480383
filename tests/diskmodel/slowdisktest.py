# SPDX-License-Identifier: BSD-3-Clause
"""What the root tests of the disk model share: skipping, and slow-disk."""

import os
import shutil
import sys

SLOW_DISK = os.path.join(os.environ["UBD_SRC"], "scripts", "slow-disk")


def skip(why):
    print(f"skipped: {why}")
    sys.exit(77)


def check_host(*programs):
    """Skip unless disks can be made and mounted here."""
    if os.geteuid() != 0:
        skip("needs root, for mounts and loop devices")
    for device in ("/dev/fuse", "/dev/loop-control"):
        if not os.path.exists(device):
            skip(f"needs {device}")
    for program in ("losetup", "unshare", *programs):
        if not shutil.which(program):
            skip(f"needs {program}")
