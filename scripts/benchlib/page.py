# SPDX-License-Identifier: BSD-3-Clause
"""Pictures (gnuplot, SVG) and the HTML page that holds everything."""

import html
import os
import shutil
import subprocess

from . import servers

_COLOURS = {"ours": "#2a6fb0", "peer": "#6f9f57", "ceiling": "#b0b0b0",
            "raw": "#d9d9d9", "again": "#a9c69c"}
_UNSAFE = "#cf8a80"

_STYLE = """
body { font: 15px/1.45 sans-serif; max-width: 70em; margin: 2em auto;
       padding: 0 1em; color: #222; }
table { border-collapse: collapse; margin: .6em 0; }
th, td { padding: .15em .7em; text-align: right;
         border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; }
.words th, .words td { text-align: left; }
.trouble { color: #a33; } code { background: #f3f3f3; }
img { max-width: 100%; }
"""

_NOTES = """
Medians of the rounds; the spread is the lowest and highest round.  Ratios are
medians of ratios inside a round, and above 1 always means better.  The best
peer (*) is the best server, ours aside, that promises durability and keeps
the promise; rows marked unsafe promise none, a ceiling stores nothing, raw is
fio on the file without a server.  CPU is the server's own.  Peak dirty is the
highest of samples, so a lower bound.
"""


def plot(script, folder):
    """Run gnuplot in @folder; False if it is not installed."""
    program = shutil.which("gnuplot")
    if not program:
        return False
    done = subprocess.run([program], input=script, cwd=folder, check=False,
                          text=True, capture_output=True)
    if done.returncode != 0:
        raise servers.Failed("gnuplot: " + done.stderr.strip()[-200:])
    return True


def draw(result, folder):
    """Write LOAD.svg and return its name, or None without gnuplot."""
    rows = [r for r in result.rows.values() if r.ok]
    if not rows:
        return None
    name = result.load.name + ".svg"
    plots, data, ticks = [], [], []
    for i, r in enumerate(rows):
        lo, hi = r.span()
        safe = r.honest or r.group in ("ceiling", "raw")
        colour = _COLOURS[r.group] if safe else _UNSAFE
        plots.append("'-' using 1:2:3:4:(0.6) with boxerrorbars "
                     "lc rgb '%s' notitle" % colour)
        data.append("%d %g %g %g\ne\n" % (i, r.median(), lo, hi))
        ticks.append("\"%s\" %d" % (r.server, i))
    better = "higher" if result.load.higher else "lower"
    script = (
        "set terminal svg noenhanced size 760,380 font 'sans-serif,12'\n"
        "set output '%s'\nset style fill solid\nset yrange [0:*]\n"
        "set xrange [-0.6:%g]\nset ylabel \"%s (%s is better)\"\n"
        "set title \"%s\"\nset grid ytics\nset xtics (%s) rotate by -25\n"
        "set bars 0.5\nplot %s\n%s" % (
            name, len(rows) - 0.4, result.load.unit, better,
            result.load.name, ", ".join(ticks),
            ", ".join(plots), "".join(data)))
    return name if plot(script, folder) else None


def versions():
    found = []
    for argv in (["nbdkit", "--version"], ["qemu-nbd", "--version"],
                 ["nbd-server", "-V"], ["fio", "--version"]):
        program = shutil.which(argv[0])
        text = "not installed"
        if program:
            done = subprocess.run([program] + argv[1:], check=False,
                                  stdin=subprocess.DEVNULL, text=True,
                                  capture_output=True)
            text = ((done.stdout + done.stderr).splitlines() or ["?"])[0]
        found.append((argv[0], text))
    return found


def _table(head, lines):
    e = html.escape
    return (["<table><tr>%s</tr>" % "".join("<th>%s</th>" % e(c)
                                            for c in head)]
            + ["<tr>%s</tr>" % "".join("<td>%s</td>" % e(c) for c in line)
               for line in lines] + ["</table>"])


def write(folder, results, facts, targets=None, title="ubd bench",
          notes=_NOTES, picture_of=draw):
    """Write index.html and the pictures into @folder.  @targets: head and
    lines of the table of targets.
    """
    e = html.escape
    out = ["<!DOCTYPE html>", "<html lang=\"en\"><head>",
           "<meta charset=\"utf-8\"><title>%s</title>" % e(title),
           "<style>%s</style></head><body>" % _STYLE, "<h1>%s</h1>" % e(title),
           "<table>"]
    out += ["<tr><th>%s</th><td style=\"text-align:left\">%s</td></tr>"
            % (e(k), e(v)) for k, v in facts]
    out += ["</table>", "<p>%s</p>" % e(notes.strip())]
    if targets:
        out.append("<h2 id=\"targets\">Targets</h2>")
        out += ["<div class=\"words\">"] + _table(targets[0], targets[1:])
        out.append("</div>")
    for result in results:
        load = result.load
        out.append("<h2 id=\"%s\">%s</h2>" % (e(load.name), e(load.name)))
        out += ["<p>%s</p>" % e(text) for text in [load.title] + load.notes]
        head, lines, troubles = result.table()
        if lines:
            out += _table(head, lines)
        out += ["<p class=\"trouble\">%s</p>" % e(t) for t in troubles]
        picture = picture_of(result, folder)
        if picture:
            out.append("<img src=\"%s\" alt=\"%s\">" % (
                e(picture), e("%s, as in the table" % load.name)))
    out.append("</body></html>")
    with open(os.path.join(folder, "index.html"), "w",
              encoding="utf-8") as f:
        f.write("\n".join(out) + "\n")
