#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# `meson install` puts the plugin where nbdkit looks and the manual page where
# man looks; nbdkit finds the plugin by its short name, and the page is shown
# without a warning.

from ubdtest import *


def installed(t):
    """Install below a folder of the test's; the paths of plugin and page."""
    build = os.environ.get("UBD_BUILD")
    if not build:
        raise Skip("UBD_BUILD is not set")
    place = t.path("place")
    # No rebuild: the tests run against what was built.
    t.run([need_tool("meson"), "install", "-C", build, "--no-rebuild",
           "--destdir", place])
    found = {}
    for folder, _, names in os.walk(place):
        for name in names:
            check(name not in found, f"{name} was installed twice")
            found[name] = os.path.join(folder, name)
    equal(sorted(found), ["nbdkit-ubd-plugin.1", "nbdkit-ubd-plugin.so"],
          "what was installed")
    return place, found["nbdkit-ubd-plugin.so"], found["nbdkit-ubd-plugin.1"]


def plugindir(t):
    config = t.run(["nbdkit", "--dump-config"])
    return re.search(r"^plugindir=(.*)$", config, re.M)[1]


@test
def the_plugin_lands_where_nbdkit_looks_for_plugins(t):
    place, so, _ = installed(t)
    equal(os.path.dirname(so), place + plugindir(t), "folder of the plugin")
    mentions(t.run(["nbdkit", "--dump-plugin", so]), "name=ubd",
             "ubd_modes=barrier", f"path={so}")


@test
def nbdkit_finds_the_plugin_by_its_short_name(t):
    need_root("a mount over nbdkit's plugins, in a namespace of its own")
    _, so, _ = installed(t)
    img = t.image()
    # The host's folder is seen unchanged by everybody else.
    script = 'mount --bind "$1" "$2" && shift 2 && exec "$@"'
    inside = ["unshare", "--mount", "sh", "-c", script, "sh",
              os.path.dirname(so), plugindir(t)]
    t.run([*inside, "true"])
    mentions(t.run([*inside, "nbdkit", "--dump-plugin", "ubd"]), "name=ubd")
    out = t.run([*inside, "nbdkit", "-U", "-", "ubd", img, "--run",
                 'nbdinfo --size "$uri"'])
    mentions(out, str(MiB))


@test
def the_manual_page_lands_in_section_1_and_is_shown_without_a_warning(t):
    need_tool("man")
    _, _, page = installed(t)
    equal(page.split(os.sep)[-2:], ["man1", "nbdkit-ubd-plugin.1"], "the page")
    # man's own language and width, whatever the machine's are.
    man = {**os.environ, "LC_ALL": "C.UTF-8", "MANWIDTH": "80"}
    man.pop("MANROFFOPT", None)
    shown = subprocess.run(["man", "--warnings=w", "-l", page], env=man,
                           stdin=subprocess.DEVNULL, capture_output=True,
                           check=False)
    equal((shown.returncode, shown.stderr.decode()), (0, ""),
          "man's status and warnings")
    text = re.sub(".\b", "", shown.stdout.decode())
    mentions(text, "NAME", "cache=barrier", "file=")
    equal(t.run(["man", "-M", os.path.dirname(os.path.dirname(page)), "-w",
                 "nbdkit-ubd-plugin"], env=man).strip(), page,
          "what man finds by name")


main()
