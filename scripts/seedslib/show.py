# SPDX-License-Identifier: BSD-3-Clause
"""Tables as CSV, SVG, HTML and as the README's section."""

import os
import textwrap

from benchlib import host, page, results, servers
from . import tables

BEGIN = "<!-- Made by scripts/seeds --markdown, from here -->"
END = "<!-- to here -->"
_COLOURS = ("#2a6fb0", "#8fb9dd", "#d99a3c", "#a33a3a")

NOTES = """
Medians of the rounds; the spread is the lowest and highest round.  Within a
table the rows take turns, and only ratios inside one table mean something.
Cost compares the time with that of the first row, inside each round.  Dirty
is what of the image was dirty or under write-out in the host's page cache;
peaks are the highest of samples.  Host sync is an fdatasync of the image on
the host, afterwards: what it had to write was not on the disk although the
flush had been answered.  A row marked unsafe promises nothing.
"""


def write_csv(folder, done):
    for result in done:
        results.write_csv(os.path.join(folder, result.load.name + ".csv"),
                          [result], tables.FIELDS)


def draw(result, folder):
    """Write TABLE.svg, stacked bars, and return its name; None without
    gnuplot.
    """
    rows = result.in_order()
    if not rows:
        return None
    load, name = result.load, result.load.name + ".svg"
    heights = [sum(r.median(field) or 0 for _, field in load.parts)
               for r in rows]
    top = _top(heights)
    data = ["%s\n" % " ".join(
        ['"%s%s"' % (result.labels[r.server], result.marks[r.server])]
        + ["%g" % (r.median(field) or 0) for _, field in load.parts]
        + ["%g %g %g" % (r.median(), *r.span())]
        + [_label(r.median(), height, top)])
        for r, height in zip(rows, heights)]
    bars = ", ".join(
        "$rows using %d%s lc rgb '%s' title \"%s\"" % (
            i + 2, ":xtic(1)" if i == 0 else "", _COLOURS[i], what)
        for i, (what, _) in enumerate(load.parts))
    at = len(load.parts) + 2
    script = (
        "$rows << EOD\n%sEOD\n"
        "set terminal svg noenhanced size 860,500 font 'sans-serif,12'\n"
        "set output '%s'\nset title \"%s\"\nset ylabel 'seconds'\n"
        "set style data histograms\nset style histogram rowstacked\n"
        "set style fill solid\nset boxwidth 0.6\nset yrange [0:%g]\n"
        "set grid ytics\nset xtics rotate by -25\n"
        "set key outside bottom center horizontal\n"
        "set bars 0.5\nplot %s, $rows using 0:%d:%d:%d:%d with candlesticks "
        "whiskerbars lc rgb 'black' title 'median, lowest and highest', "
        "$rows using 0:%d:%d with labels offset 0,0.6 notitle\n" % (
            "".join(data), name, _wrapped(load.title), top, bars,
            at, at + 1, at + 2, at, at + 3, at + 4))
    return name if page.plot(script, folder) else None


def _top(totals):
    """Of the picture, with room for figures.  One bar that would make all
    others too small to see is cut; its figure says how high it is.
    """
    totals = sorted(totals, reverse=True)
    if len(totals) > 2 and totals[0] > 4 * totals[1] > 0:
        return totals[1] * 1.5
    return totals[0] * 1.15


def _label(seconds, height, top):
    """Where the figure of a bar stands, and the figure."""
    text = results.number(seconds)
    if height > top:
        return '%g "%s, cut"' % (top * 0.92, text)
    return '%g "%s"' % (max(seconds, height), text)


def _wrapped(title):
    """In lines that the picture is wide enough for."""
    return "\\n".join(textwrap.wrap(title.replace('"', "'"), 90))


def write_page(folder, done, facts):
    page.write(folder, done, facts, title="The three old complaints, "
               "measured again", notes=NOTES, picture_of=draw)
    write_csv(folder, done)


def section(done, facts):
    """What stands between the README's two marks, as lines."""
    said = dict(facts)
    out = ["Measured by `%s` on %s: %s; %s; %s, %s; %s." % (
        said["command"], said["date"], said["processor"], said["memory"],
        said["kernel"], said["image on"], ", ".join(
            v for k, v in facts if k in ("nbdkit", "qemu-nbd", "guests")))]
    for result in done:
        head, lines, troubles = result.table()
        title = result.load.title
        out += ["", "**%s%s**" % (title[0].upper(), title[1:]), "",
                "Then: %s." % result.load.old, ""]
        if lines:
            out += _row(head) + _row(["---"] + ["---:"] * (len(head) - 1))
            out += [c for line in lines for c in _row(line)]
        out += [""] * bool(lines and troubles) + ["* " + t for t in troubles]
    return out


def _row(cells):
    return ["| %s |" % " | ".join(c.replace("|", "\\|") for c in cells)]


def check_markdown(path):
    """ValueError if @path is a file that is not ours to change."""
    if os.path.exists(path):
        lines = host.read_text(path).splitlines()
        if lines.count(BEGIN) != 1 or lines.count(END) != 1 or (
                lines.index(BEGIN) > lines.index(END)):
            raise ValueError("expected a new file, or one with the lines "
                             "'%s' and '%s'" % (BEGIN, END))


def write_markdown(path, done, facts):
    before, after = [], []
    if os.path.exists(path):
        lines = host.read_text(path).splitlines()
        before = lines[:lines.index(BEGIN)]
        after = lines[lines.index(END) + 1:]
    text = "\n".join(before + [BEGIN, ""] + section(done, facts)
                     + ["", END] + after) + "\n"
    new = path + ".new"
    try:
        with open(new, "w", encoding="utf-8") as f:
            f.write(text)
        os.replace(new, path)
    except OSError as e:
        raise servers.Failed("cannot write %s: %s"
                             % (path, e.strerror)) from None
