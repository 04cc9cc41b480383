# SPDX-License-Identifier: BSD-3-Clause
"""Reads the kernel's trace buffers in their binary form.

The text form rounds to microseconds, which is too coarse to say which of two
things came first.  The layout is that of <linux/ring_buffer.h>; where the
fields of an event are is read from the event's `format` file.
"""

import re
import struct

_COMMIT_SIZE = 0xfffff
_MISSED_EVENTS = 1 << 31
_PAGE_HEADER = 16
_PADDING, _TIME_EXTEND, _TIME_STAMP = 29, 30, 31
_FIELD = re.compile(
    r"\s*field:(.*?)\s*(\w+)(\[\d*\])?;\s*offset:(\d+);\s*size:(\d+);"
    r"\s*signed:([01]);")


class Format:
    """How one kind of event is laid out."""

    def __init__(self, name, text):
        self.name = name
        found = re.search(r"^ID: (\d+)$", text, re.MULTILINE)
        if not found:
            raise ValueError("no ID in the format of " + name)
        self.number = int(found.group(1))
        self.fields = {}
        for line in text.splitlines():
            match = _FIELD.match(line)
            if not match:
                continue
            kind, field, array, offset, size, signed = match.groups()
            self.fields[field] = (int(offset), int(size), signed == "1",
                                  bool(array) and "__data_loc" not in kind)

    def value(self, data, field):
        """An integer, or the text of an array of characters."""
        offset, size, signed, is_text = self.fields[field]
        raw = data[offset:offset + size]
        if is_text:
            return raw.split(b"\0", 1)[0].decode("ascii", "replace")
        return int.from_bytes(raw, "little", signed=signed)


class Event:
    __slots__ = ("ns", "cpu", "format", "data")

    def __init__(self, ns, cpu, layout, data):
        self.ns, self.cpu, self.format, self.data = ns, cpu, layout, data

    @property
    def name(self):
        return self.format.name

    def __getitem__(self, field):
        return self.format.value(self.data, field)


def _entries(page, size):
    """(type, time delta, start and end of the data) of each entry."""
    at, end = _PAGE_HEADER, _PAGE_HEADER + size
    while at + 4 <= end:
        word, = struct.unpack_from("<I", page, at)
        kind, delta = word & 31, word >> 5
        body = at + 4
        if kind in (_TIME_EXTEND, _TIME_STAMP):
            high, = struct.unpack_from("<I", page, body)
            yield kind, high << 27 | delta, body, body
            at = body + 4
            continue
        if kind == _PADDING and delta == 0:
            return  # The rest of the page is empty.
        if kind in (0, _PADDING):
            length, = struct.unpack_from("<I", page, body)
            yield kind, delta, body + 4, body + length
            at = body + length
        else:
            yield kind, delta, body, body + kind * 4
            at = body + kind * 4


def page_events(page, cpu, formats):
    """The events of one page and whether some before it were lost.

    @formats is a dict from event number to Format; others are passed over.
    """
    now, commit = struct.unpack_from("<QQ", page)
    events = []
    for kind, delta, start, end in _entries(page, commit & _COMMIT_SIZE):
        if kind == _TIME_STAMP:
            # It has 59 bits; those above are the page's.
            now = delta | now & ~((1 << 59) - 1)
            continue
        now += delta
        if kind in (_TIME_EXTEND, _PADDING) or end - start < 2:
            continue
        number, = struct.unpack_from("<H", page, start)
        if number in formats:
            events.append(Event(now, cpu, formats[number], page[start:end]))
    return events, bool(commit & _MISSED_EVENTS)
