# SPDX-License-Identifier: BSD-3-Clause
"""What the guest itself runs, and the settings that it reads first.

Both kinds of guest see the host's files under $HOST (UML: as hostfs, it is /;
qemu: through 9p) and build a root of their own from them in $NEW: the host's
folders, bound, and fresh ones where a guest needs to write.
"""

import shlex

STAGE = r"""
fail() {
    echo "failed $*" >&7
    while :; do $B sleep 1000; done  # The host ends us.
}

make_root() {
    $B mount -t tmpfs -o mode=755 root "$NEW" || fail "no tmpfs in the guest"
    for path in "$HOST"/*; do
        name=${path##*/}
        if [ -L "$path" ]; then
            $B cp -a "$path" "$NEW/"
        elif [ -d "$path" ]; then
            $B mkdir "$NEW/$name"
            case $name in
            tmp | run | mnt | proc | sys | dev | share | root) ;;
            *)
                $B mount -o bind "$path" "$NEW/$name" ||
                    fail "cannot show the host's folder $name"
                # Without root, root's suid programs (mount is one) belong to
                # nobody, and would give up the power that they need.
                $B mount -o remount,bind,nosuid "$NEW/$name"
                ;;
            esac
        fi
    done
    $B mkdir -p "$NEW/tmp" "$NEW/run" "$NEW/mnt" "$NEW/share" "$NEW/root"
    $B chmod 1777 "$NEW/tmp"
    $B mkdir -p "$NEW/proc" "$NEW/sys" "$NEW/dev"
    $B mount -t proc proc "$NEW/proc"
    $B mount -t sysfs sys "$NEW/sys"
    $B mount -t devtmpfs dev "$NEW/dev"
    [ -d "$NEW/dev/pts" ] || $B mkdir "$NEW/dev/pts"
    $B mount -t devpts pts "$NEW/dev/pts"
    [ ! -d "$NEW/var/tmp" ] || $B mount -t tmpfs tmp "$NEW/var/tmp"
    if [ -d "$MODULES" ] && [ -d "$NEW/usr/lib/modules" ]; then
        $B mount -o bind "$MODULES" "$NEW/usr/lib/modules"
    fi
    $B hostname guest
}

attach_nbd() {
    $B ip link set lo up
    $B ip addr add "$GUEST_ADDRESS/24" dev "$INTERFACE" ||
        fail "no network interface in the guest"
    $B ip link set "$INTERFACE" up
    i=0
    for disk in $DISKS; do
        $B chroot "$NEW" nbd-client "$HOST_ADDRESS" $((FIRST_PORT + i)) "$disk" \
            -N '' >&8 2>&1 </dev/null || fail "nbd-client cannot attach $disk"
        i=$((i + 1))
    done
}

check_disks() {
    for disk in $DISKS; do
        [ -b "$NEW$disk" ] || fail "there is no $disk in the guest"
        if [ "$WRITE_BACK" = yes ]; then
            # qemu-storage-daemon does not say that it caches; without this
            # the guest would send no flush.
            echo write back >"/sys/block/${disk#/dev/}/cache_type" ||
                fail "cannot set the cache type of $disk"
        fi
    done
}

export_disks() {
    i=
    for disk in $DISKS; do
        export "DISK$i=$disk"
        i=$((${i:-1} + 1))
    done
    export DISKS
    export HOME=/root TERM="$TERMINAL" \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
}

run_commands() {
    status=0
    i=0
    while [ "$i" -lt "$NR_COMMANDS" ]; do
        result=0
        $B chroot "$NEW" /bin/sh "$RUN/command$i" </dev/null 7>&- 8>&- ||
            result=$?
        [ "$result" -eq 0 ] || [ "$status" -ne 0 ] || status=$result
        [ "$result" -eq 0 ] || [ "$KEEP_GOING" = yes ] || break
        i=$((i + 1))
    done >"$OUT" 2>"$ERR"
}

run_shell() {
    exec 9<>"$TTY"  # A terminal forgets its settings at the last close.
    $B stty -F "$TTY" sane rows "$ROWS" cols "$WIDTH"
    $B chroot "$NEW" setsid -c /bin/sh -c \
        'if [ -x /bin/bash ]; then exec bash --norc -i; else exec sh -i; fi' \
        <"$TTY" >"$TTY" 2>&1 7>&- 8>&- 9>&-
    status=$?
}

make_root
attach
check_disks
export_disks
if [ "$NR_COMMANDS" -gt 0 ]; then
    run_commands
else
    run_shell
fi
# The share is a file system of the host's that this kernel may cache.
[ -z "$SHARED" ] || $B chroot "$NEW" sync -f /share
echo "status $status" >&7
while :; do $B sleep 1000; done
"""

# Pid 1 of UML.  Terminals stay open, for their settings.
UML_INIT = r"""#!/bin/sh
export PATH=/usr/sbin:/usr/bin:/sbin:/bin
. "$RUN/settings"
$B mount -t proc proc /proc
$B mount -t sysfs sys /sys
exec 4>/dev/tty1 5>/dev/tty2 7>/dev/tty3 8>/dev/tty0
for tty in tty1 tty2 tty3; do $B stty -F /dev/$tty raw -echo; done
OUT=/dev/tty1 ERR=/dev/tty2 TTY=/dev/tty4
attach() {
    KO=$MODULES/$(uname -r)/kernel/drivers/block
    case $ATTACH in
    vhost) $B insmod "$KO/virtio_blk.ko" || fail "no virtio_blk.ko" ;;
    nbd)
        $B insmod "$KO/nbd.ko" || fail "no nbd.ko"
        attach_nbd
        ;;
    esac
    if [ -n "$SHARED" ]; then
        $B mount -t hostfs -o "$RUN/share" share "$NEW/share" ||
            fail "cannot show the shared folder"
    fi
}
. "$RUN/stage"
"""

# Continues, in qemu, the /init of the initramfs.
QEMU_INIT = r"""
exec 4>/dev/hvc0 5>/dev/hvc1 7>/dev/hvc2 8>/dev/console
for tty in hvc0 hvc1 hvc2; do $B stty -F /dev/$tty raw -echo; done
OUT=/dev/hvc0 ERR=/dev/hvc1 TTY=/dev/hvc3
attach() {
    case $ATTACH in
    virtio | raw) $B modprobe virtio_blk || fail "no virtio_blk.ko" ;;
    nbd)
        $B modprobe virtio_net || fail "no virtio_net.ko"
        $B modprobe nbd || fail "no nbd.ko"
        attach_nbd
        ;;
    esac
    if [ -n "$SHARED" ]; then
        $B mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144 \
            share "$NEW/share" || fail "cannot show the shared folder"
    fi
}
. "$RUN_HERE/stage"
"""


def settings(values):
    return "".join("%s=%s\n" % (name, shlex.quote(str(value)))
                   for name, value in values.items())
