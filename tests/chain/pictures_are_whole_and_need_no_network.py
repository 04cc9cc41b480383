#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""--svg and --html: well-formed, with every sync, and nothing from outside."""

import os
import re
import tempfile
import xml.etree.ElementTree as ET

import chaintest
from chaintest import chain, fail


def check_svg(text, words):
    root = ET.fromstring(text)
    found = " ".join(t for e in root.iter() for t in [e.text or ""])
    for word in words:
        if word not in found:
            fail("the picture does not say %r" % word)
    width, height = float(root.get("width")), float(root.get("height"))
    for e in root.iter("{http://www.w3.org/2000/svg}rect"):
        if e.get("x") is None:
            continue
        x, y = float(e.get("x")), float(e.get("y"))
        if not (0 <= x and x + float(e.get("width")) <= width + 1 and
                0 <= y and y + float(e.get("height")) <= height + 1):
            fail("a bar is outside of the picture: %r" % e.attrib)


def main():
    chaintest.need()
    with tempfile.TemporaryDirectory() as folder:
        for mode, words in (
                ("barrier", ["7 client syncs", "6 reached the disk", "FLUSH",
                             "sync 1, led", "fdatasync → disk flush"]),
                ("unsafe", ["7 never caused a host sync", "never reached",
                            "FLUSH acknowledged, no host sync"])):
            svg, page = (os.path.join(folder, n) for n in ("x.svg", "x.html"))
            chain("--cache", mode, "--svg", svg, "--html", page, "--",
                  "/usr/bin/python3", "-c", chaintest.CLIENT).expect(0)
            with open(svg, encoding="utf-8") as f:
                check_svg(f.read(), words)
            with open(page, encoding="utf-8") as f:
                text = f.read()
            inner = re.search(r"<svg.*</svg>", text, re.S).group(0)
            check_svg(inner, words)
            for bad in re.findall(r"(?:src|href|url|import)\W{1,3}\S+", text):
                fail("the page refers to " + bad)
            for link in re.findall(r"https?://[^\"' <]+", text):
                if link != "http://www.w3.org/2000/svg":
                    fail("the page names " + link)


if __name__ == "__main__":
    main()
