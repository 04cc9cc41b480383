# SPDX-License-Identifier: BSD-3-Clause
"""Which of the host's events are recorded, and what they say.

A sync of the image is a call (fdatasync, fsync, an io_uring FSYNC) or just the
file system's part of one, if the caller wrote with RWF_DSYNC or O_SYNC.  The
flush that it causes is issued by a worker of the kernel: it can be tied to the
sync by time only, which join.py does.
"""

import bisect
import os
import stat

from .records import BlockOp, HostSync

_IORING_OP_FSYNC = 3
# (system, event, condition): all ways to write to a file.
_DIRECT = ("iomap", "iomap_dio_rw_begin", " && ki_flags & 131072")  # IOCB_WRITE
_CHANGES = {
    "ext4": (("ext4", "ext4_da_write_begin", ""),
             ("ext4", "ext4_write_begin", ""),
             ("ext4", "ext4_fallocate_enter", ""),
             ("ext4", "ext4_punch_hole", ""), _DIRECT),
    "xfs": (("xfs", "xfs_file_buffered_write", ""),
            ("xfs", "xfs_free_file_space", ""),
            ("xfs", "xfs_alloc_file_space", ""),
            ("xfs", "xfs_zero_file_space", ""), _DIRECT),
}
_CACHED = ("ext4_da_write_end", "ext4_write_end", "ext4_journalled_write_end")
_CALLS = ("fdatasync", "fsync", "sync", "syncfs", "msync")


def enable(recorder, disks, image, tid):
    """Choose the events; true if those of the file system name the image."""
    devices = " || ".join("dev == %d" % d.number for d in disks)
    recorder.disk.enable("block", "block_rq_issue", devices)
    recorder.disk.enable("block", "block_rq_complete", devices)
    sees_image = _enable_filesystem(recorder, image)
    # The reads and writes of a ring end with a length: not for us.
    recorder.disk.enable("io_uring", "io_uring_complete", "res <= 0")
    recorder.calls.enable("io_uring", "io_uring_submit_req",
                          "opcode == %d" % _IORING_OP_FSYNC)
    for call in _CALLS:
        recorder.calls.enable("syscalls", "sys_enter_" + call)
        recorder.calls.enable("syscalls", "sys_exit_" + call)
    for way in ("enter", "exit"):  # See place_probes in records.py.
        recorder.calls.enable("syscalls", "sys_%s_mkdirat" % way)
    recorder.calls.follow(tid)
    return sees_image


def _which(image):
    """(name of the file system, condition that picks events of the image)"""
    st = os.stat(image)
    if stat.S_ISBLK(st.st_mode):
        return "", ""
    device = os.major(st.st_dev) << 20 | os.minor(st.st_dev)
    return (_filesystem_kind(st.st_dev),
            "dev == %d && ino == %d" % (device, st.st_ino))


def enable_changes(recorder, image):
    """Where no server tells of writes: true if the file system does."""
    kind, which = _which(image)
    names = _CHANGES.get(kind, ())
    # All of them, or a write could go unseen.
    return bool(names) and all(
        [recorder.disk.enable(system, name, which + more)
         for system, name, more in names])


def enable_cached(recorder, image):
    """When a write has reached the page cache; only ext4 says so."""
    kind, which = _which(image)
    for name in _CACHED if kind == "ext4" else ():
        recorder.disk.enable("ext4", name, which)


def cached_writes(events):
    """(ns, offset, length) of what was put into the page cache."""
    return [(e.ns, e["pos"], e["copied"]) for e in events if e.name in _CACHED]


def image_changes(events):
    """When the image was written to."""
    names = {name for rows in _CHANGES.values() for _, name, _ in rows}
    return [e.ns for e in events if e.name in names]


def _enable_filesystem(recorder, image):
    kind, which = _which(image)
    if not which:
        return False
    found = recorder.disk.enable("ext4", "ext4_sync_file_enter", which)
    recorder.disk.enable("ext4", "ext4_sync_file_exit", which)
    found |= recorder.disk.enable("xfs", "xfs_file_fsync", which)
    # Each of the three is silent where the image is on another one.
    return found and kind in ("ext4", "xfs")


def _filesystem_kind(device):
    want = "%d:%d" % (os.major(device), os.minor(device))
    with open("/proc/self/mountinfo", encoding="utf-8",
              errors="replace") as f:
        for line in f:
            left, right = line.split(" - ", 1)
            if left.split()[2] == want:
                return right.split()[0]
    return ""


# ---- The block layer ----

def block_kind(rwbs):
    """(kind, FUA) of the letters that the kernel shows for a request."""
    letters = rwbs[1:] if rwbs[:1] == "F" and len(rwbs) > 1 else rwbs
    kind = {"F": "flush", "W": "write", "R": "read", "D": "discard",
            "E": "discard"}.get(letters[:1], "other")
    return kind, "F" in letters[1:]


def block_ops(events):
    """BlockOps in the order of their issue."""
    ops, flying, flushes = [], {}, {}
    for event in events:
        if event.name == "block_rq_issue":
            kind, fua = block_kind(event["rwbs"])
            op = BlockOp(event["dev"], kind, fua, event["sector"],
                         event["bytes"], event.ns, 0, 0, event["common_pid"],
                         event["comm"])
            ops.append(op)
            if kind == "flush":
                flushes.setdefault(op.disk, []).append(op)
            else:
                flying[op.disk, op.sector] = op
        elif event.name == "block_rq_complete":
            _complete(event, flying, flushes)
    return ops


def _complete(event, flying, flushes):
    disk = event["dev"]
    kind, _ = block_kind(event["rwbs"])
    if kind == "flush":  # These have no sector; the oldest one ends first.
        waiting = flushes.get(disk)
        op = waiting.pop(0) if waiting else None
    else:
        op = flying.pop((disk, event["sector"]), None)
        done = event["nr_sector"] * 512
        if op and 0 < done < op.bytes:  # A part; the rest ends later.
            flying[disk, event["sector"] + event["nr_sector"]] = op
    if op:
        op.complete, op.error = event.ns, event["error"]


# ---- Syncs ----

def host_syncs(events, sees_image):
    """HostSyncs in the order of their beginning.

    With @sees_image only calls in which the file system was seen to sync the
    image are any; else every sync of our processes may be one.
    """
    calls = _system_calls(events) + _ring_calls(events)
    parts = _filesystem_parts(events)
    if sees_image:
        calls = _calls_of_image(calls, parts)
    calls.sort(key=lambda c: c.enter)
    return calls


def calls_named(events, name):
    """(enter, exit) of each call of that name, in the order of their end."""
    return [(c.enter, c.exit) for c in _system_calls(events, (name,))]


def _system_calls(events, names=_CALLS):
    running, done = {}, []
    for event in events:
        way, call = event.name[:9], event.name.split("_", 2)[-1]
        if call not in names:
            continue
        tid = event["common_pid"]
        if way == "sys_enter":
            running[tid] = HostSync(call, event.ns, 0, tid, 0)
        elif way == "sys_exit_" and tid in running:
            sync = running.pop(tid)
            sync.exit, sync.result = event.ns, event["ret"]
            done.append(sync)
    return done


def _ring_calls(events):
    running, done = {}, []
    for event in events:
        if event.name == "io_uring_submit_req":
            running[event["req"]] = HostSync("io_uring fsync", event.ns, 0,
                                             event["common_pid"], 0)
        elif event.name == "io_uring_complete":
            sync = running.pop(event["req"], None)
            if sync:
                sync.exit, sync.result = event.ns, event["res"]
                done.append(sync)
    return done


def _filesystem_parts(events):
    running, done = {}, []
    for event in events:
        tid = event["common_pid"]
        if event.name == "ext4_sync_file_enter":
            running[tid] = HostSync("ext4 sync", event.ns, 0, tid, 0)
        elif event.name == "ext4_sync_file_exit" and tid in running:
            part = running.pop(tid)
            part.exit, part.result = event.ns, event["ret"]
            done.append(part)
        elif event.name == "xfs_file_fsync":  # XFS does not say when it ends.
            done.append(HostSync("xfs sync", event.ns, 0, tid, 0))
    return done


def _around(calls, starts, part, most):
    """Of the @most calls that began last before @part, those that ended after
    it."""
    end = part.exit or part.enter
    at = bisect.bisect_right(starts, part.enter)
    return [c for c in calls[max(0, at - most):at] if end <= c.exit]


def _calls_of_image(calls, parts):
    """The calls around @parts, and the parts that no system call encloses.

    What a ring does runs in a worker, of which nobody says for which request:
    a part is kept beside all FSYNCs of rings that may have been its reason,
    for it may as well belong to a durable write.
    """
    groups = {}  # By thread.
    for call in sorted(calls, key=lambda c: c.enter):
        ring = call.call.startswith("io_uring")
        groups.setdefault("ring" if ring else call.tid, []).append(call)
    starts = {key: [c.enter for c in group] for key, group in groups.items()}
    found = {}
    for part in parts:
        syncs = []
        if part.tid in groups:
            syncs = _around(groups[part.tid], starts[part.tid], part, 1)
        if not syncs and "ring" in groups:
            syncs = _around(groups["ring"], starts["ring"], part, 64) + [part]
        for sync in syncs or [part]:
            found[id(sync)] = sync
    return list(found.values())
