# SPDX-License-Identifier: BSD-3-Clause
"""The timelines as a picture: SVG, alone or in a page, without any network.

Above, every sync as a column made of its links; below, a band for each of the
first and the slowest, with a lane for each part of the way.  A band's width is
the sync's time, but each piece of it has the square root of its length, so
that ten microseconds can be seen beside ten milliseconds.
"""

import html as escaping
import math

from . import join, report

WIDTH, LEFT, RIGHT = 1120, 92, 24
LANE, LANE_GAP, BAND_GAP = 19, 4, 34
COLUMNS_HEIGHT, MOST_COLUMNS = 150, 240
LANES = ("guest", "NBD", "ubd", "host", "disk")
LANE_NAMES = {"guest": "guest", "NBD": "NBD", "ubd": "ubd",
              "host": "host kernel", "disk": "disk"}
BARS = {"guest": "#4f7cac", "NBD": "#5a9367", "change": "#8fb996",
        "ubd": "#c2a83e", "host": "#d07f4b",
        "write": "#9a8fb8", "flush": "#bd3b34"}
LINKS = dict(zip(join.LINKS, (
    "#c4c9d0", "#4f7cac", "#4f7cac", "#5a9367", "#c2a83e", "#d9a273",
    "#bd3b34", "#a4677f", "#6d7480", "#9dbbdc", "#9dbbdc")))
STYLE = ("text{font:12px system-ui,'DejaVu Sans',sans-serif;fill:#23272e}"
         ".s{font-size:10.5px;fill:#5b636e}.h{font-size:19px;font-weight:600}"
         ".b{font-weight:600}.w{fill:#fff;font-size:10.5px}"
         ".bad{fill:#b3261e;font-weight:600}")


def _text(x, y, words, kind="", anchor="start"):
    return '<text x="%.1f" y="%.1f" class="%s" text-anchor="%s">%s</text>' % (
        x, y, kind, anchor, escaping.escape(words))


def _box(x, y, width, height, colour, tip, more=""):
    return ('<rect x="%.1f" y="%.1f" width="%.1f" height="%.1f" fill="%s"%s>'
            '<title>%s</title></rect>' % (x, y, max(width, 1.2), height,
                                          colour, more, escaping.escape(tip)))


def _fit(words, width, size=5.9):
    """As much of @words as @width pixels hold."""
    room = int(width / size)
    if len(words) <= room:
        return words
    return words[:room - 1] + "…" if room > 3 else ""


# ---- All syncs, as columns ----

def _round_up(value):
    power = 10 ** math.floor(math.log10(max(value, 1)))
    return next(power * n for n in (1, 2, 5, 10) if power * n >= value)


def _columns(run, timelines, top):
    """Elements, and where they end."""
    if not timelines:
        return [], top
    step = -(-len(timelines) // MOST_COLUMNS)
    shown = [max(timelines[i:i + step], key=lambda t: t.total)
             for i in range(0, len(timelines), step)]
    most = _round_up(max(t.total for t in shown) / 1000) * 1000
    bottom = top + 24 + COLUMNS_HEIGHT
    out = [_text(LEFT, top + 8, "Each %s sync, by its links%s" % (
        run.guest_word, " (the slowest of every %d)" % step
        if step > 1 else ""), "b")]
    for part in (0, 0.5, 1):
        y = bottom - part * COLUMNS_HEIGHT
        out.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f"'
                   ' stroke="#dfe3e8"/>' % (LEFT, WIDTH - RIGHT, y, y))
        out.append(_text(LEFT - 8, y + 4, report.us(most * part) + " µs", "s",
                         "end"))
    pitch = min((WIDTH - LEFT - RIGHT) / len(shown), 34)
    for number, line in enumerate(shown):
        x, y = LEFT + number * pitch, bottom
        for name, ns in line.links:
            height = ns / most * COLUMNS_HEIGHT
            y -= height
            out.append('<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f"'
                       ' fill="%s"><title>%s</title></rect>' % (
                           x, y, max(pitch * 0.82, 0.8), height,
                           LINKS.get(name, "#999"), escaping.escape(
                               "sync %d, %s: %s µs" % (
                                   line.guest.number, name, report.us(ns)))))
        if line.fate in (join.NONE, join.BROKEN, join.FAILED):
            out.append(_text(x + pitch * 0.41, y - 3, "×", "bad", "middle"))
    return out + _legend(timelines, bottom + 20), bottom + 44


def _legend(timelines, y):
    out, x = [], LEFT
    for name, values in report.link_values(timelines):
        words = "%s (median %s)" % (
            name, report.us(join.percentile(values, 50)))
        width = 22 + 6.1 * len(words)
        if x + width > WIDTH - RIGHT:
            x, y = LEFT, y + 17
        out.append(_box(x, y - 9, 11, 11, LINKS.get(name, "#999"), name))
        out.append(_text(x + 16, y, words, "s"))
        x += width
    return out


# ---- One sync, as a band ----

class Scale:
    """Pixels of times; each piece has the square root of its length."""

    def __init__(self, times, left, right):
        times = sorted(set(times))
        roots = [math.sqrt(b - a) for a, b in zip(times, times[1:])]
        # No piece so thin that its label and its bar are lost.
        least = sum(roots) / max(len(roots), 1) * 0.35
        roots = [max(r, least) for r in roots]
        scale = (right - left) / (sum(roots) or 1)
        self.places = {times[0]: left}
        x = left
        for ns, root in zip(times[1:], roots):
            x += root * scale
            self.places[ns] = x

    def pieces(self):
        rows = list(self.places.items())
        return [(a[1], b[1], b[0] - a[0]) for a, b in zip(rows, rows[1:])]


def _spans(run, line):
    """(lane, from, to, colour, words) of the bars."""
    guest, request, proof = line.guest, line.request, line.proof
    spans = []
    if guest.request is None:
        spans.append(("guest", guest.begin, guest.end, BARS["guest"],
                      "%s (%s)" % (guest.kind, guest.comm)))
    if line.changes:
        spans.append(("NBD", line.changes[0].arrival,
                      max(c.end for c in line.changes), BARS["change"],
                      report.describe_changes(line)))
    if request:
        spans.append(("NBD", request.arrival, request.end, BARS["NBD"],
                      request.title))
        sync = request.sync
        if sync and sync.how in ("led", "joined", "write"):
            words = ("durable write" if sync.how == "write" else
                     "sync %d, %s" % (sync.id, sync.how))
            spans.append(("ubd", sync.submitted, sync.completed, BARS["ubd"],
                          words))
    if proof:
        spans += _disk_spans(proof)
    return spans


def _disk_spans(proof):
    host, flush, spans = proof.host, proof.flush, []
    if host and host.exit:
        spans.append(("host", host.enter, host.exit, BARS["host"], host.call))
    writes = [w for w in proof.writes if w.complete and w is not flush]
    if writes:
        spans.append(("disk", min(w.issue for w in writes),
                      max(w.complete for w in writes), BARS["write"],
                      "%s, %s" % (report.plural(len(writes), "write"),
                                  report.size(sum(w.bytes for w in writes)))))
    if flush:
        spans.append(("disk", flush.issue, flush.complete, BARS["flush"],
                      "FLUSH" if flush.kind == "flush" else "WRITE+FUA"))
    return spans


def _band(run, line, top):
    """Elements, and where they end."""
    lanes = [n for n in LANES if (n != "guest" or line.guest.request is None)
             and (n not in ("NBD", "ubd") or run.has_server)]
    spans = _spans(run, line)
    scale = Scale([s[i] for s in spans for i in (1, 2)], LEFT, WIDTH - RIGHT)
    is_bad = line.fate in (join.NONE, join.BROKEN, join.FAILED)
    out = [_text(LEFT, top, "sync %d · %s µs" % (
        line.guest.number, report.us(line.total)), "b"),
           _text(LEFT + 170, top, _fit(line.text, WIDTH - LEFT - 200),
                 "bad" if is_bad else "s")]
    places, y = {}, top + 9
    for name in lanes:
        places[name] = y
        out.append(_box(LEFT, y, WIDTH - LEFT - RIGHT, LANE, "#f1f3f6", ""))
        out.append(_text(LEFT - 8, y + 13.5, LANE_NAMES[name], "s", "end"))
        y += LANE + LANE_GAP
    for left, right, ns in scale.pieces():
        out.append('<line x1="%.1f" x2="%.1f" y1="%.1f" y2="%.1f"'
                   ' stroke="#aab2bd" stroke-dasharray="2 3"/>' % (
                       right, right, top + 9, y))
        out.append(_text((left + right) / 2, y + 9,
                         _fit(report.us(ns), right - left + 6, 5.6), "s",
                         "middle"))
    for lane, begin, end, colour, words in spans:
        out += _bar(scale, places[lane], begin, end, colour, words)
    out += _missing(line, lanes, places, spans)
    return out, y + 12


def _bar(scale, y, begin, end, colour, words):
    left, right = scale.places[begin], scale.places[end]
    tip = "%s: %s µs" % (words, report.us(end - begin))
    return [_box(left, y + 2, right - left, LANE - 4, colour, tip,
                 ' rx="2" fill-opacity="0.93"'),
            _text(left + 5, y + 13, _fit(words, right - left - 8), "w")]


def _missing(line, lanes, places, spans):
    """Lanes that the sync should have reached and did not."""
    if line.fate not in (join.NONE, join.BROKEN):
        return []
    reached = {s[0] for s in spans}
    out = []
    for name in lanes:
        if name not in reached:
            y = places[name]
            out.append('<line x1="%d" x2="%d" y1="%.1f" y2="%.1f"'
                       ' stroke="#b3261e" stroke-dasharray="6 5"/>' % (
                           LEFT, WIDTH - RIGHT, y + LANE / 2, y + LANE / 2))
            out.append('<rect x="%d" y="%.1f" width="102" height="%d"'
                       ' fill="#f1f3f6"/>' % (LEFT + 12, y, LANE))
            out.append(_text(LEFT + 18, y + 13.5, "never reached", "bad"))
    return out


# ---- The whole ----

def _verdict(timelines):
    counts = [(sum(t.fate == f for t in timelines), words)
              for f, words in report.FATES.items()]
    return "; ".join("%d %s" % c for c in counts if c[0]) or "no sync was seen"


def svg(run, timelines, most=4):
    """The text of a self-contained SVG."""
    bad = any(t.fate in (join.NONE, join.BROKEN, join.FAILED)
              for t in timelines)
    out = [_text(LEFT, 34, "%d %s syncs on their way to the disk" % (
        len(timelines), run.guest_word), "h"),
           _text(LEFT, 54, report.title(run), "s"),
           _text(LEFT, 73, _verdict(timelines), "bad" if bad else "b")]
    elements, y = _columns(run, timelines, 96)
    out += elements
    shown = report.chosen(timelines, most)
    if shown:
        out.append(_text(LEFT, y + 22, "The first and the slowest, in µs;"
                         " widths are square roots of times" if len(shown)
                         < len(timelines) else "One by one, in µs; widths are"
                         " square roots of times", "b"))
    y += 48
    for line in shown:
        elements, y = _band(run, line, y)
        out += elements
        y += BAND_GAP
    for remark in report.remarks(run):
        out.append(_text(LEFT, y, _fit(remark, WIDTH - LEFT - RIGHT, 5.6),
                         "s"))
        y += 15
    head = ('<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d"'
            ' viewBox="0 0 %d %d"><style>%s</style>'
            '<rect width="100%%" height="100%%" fill="#fff"/>' % (
                WIDTH, y + 12, WIDTH, y + 12, STYLE))
    return head + "\n" + "\n".join(out) + "\n</svg>\n"


def html(run, timelines):
    """A page: the picture with more bands, and all in words below."""
    words = report.text(run, timelines, 20)
    return ('<!doctype html>\n<html lang="en"><meta charset="utf-8">'
            '<title>chain</title><style>body{margin:0 auto;max-width:%dpx;'
            'background:#fff;color:#23272e;font-family:system-ui,sans-serif}'
            'svg{width:100%%;height:auto}pre{font-size:12px;overflow-x:auto;'
            'padding:0 24px}summary{padding:8px 24px;cursor:pointer}</style>\n'
            '%s<details><summary>In words</summary><pre>%s</pre></details>'
            '</html>\n' % (WIDTH, svg(run, timelines, 12),
                           escaping.escape(words)))
