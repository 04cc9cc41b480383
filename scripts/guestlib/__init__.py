# SPDX-License-Identifier: BSD-3-Clause
"""What scripts/guest is made of.

command   the words of the command line, the images, the packages
sandbox   namespaces in which everything runs and with which everything ends
session   inside them: starts servers and guest, passes output on, keeps time
servers   nbdkit, qemu-storage-daemon, a network of two addresses
uml, qemu how the two kinds of guest are started
inside    what the guest itself runs (shell scripts)
initramfs the kernel and the first root file system of the qemu guest
"""
