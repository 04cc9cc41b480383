#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
#
# The code, --help and the manual page name the same parameters and the same
# metrics.  Guards CONVENTIONS "Documentation": one table of parameters, every
# counter in the page.

from ubdtest import *

PAGE = os.path.join(source_root(), "plugins", "nbdkit-ubd-plugin.pod")


def page():
    return read_file(PAGE).decode()


def section(title):
    """The text of one =head1."""
    parts = re.split(r"^=head1 +(.*)$", page(), flags=re.M)
    titles = parts[1::2]
    check(title in titles, f"the page has no section {title}: {titles}")
    return parts[2 + 2 * titles.index(title)]


def plain(pod):
    """POD without its formatting codes."""
    before = None
    while before != pod:
        before = pod
        pod = re.sub(r"\b[BICFLSX]<+\s?([^<>]*?)\s?>+", r"\1", pod)
    return pod.replace("E<lt>", "<").replace("E<gt>", ">")


def parameters_of_page():
    names = []
    for item in re.findall(r"^=item +(.*)$", section("PARAMETERS"), re.M):
        match = re.match(r"\[?([a-z][a-z-]*)=", plain(item))
        if match and match[1] not in names:
            names.append(match[1])
    return names


def parameters_of_help(t):
    out = t.run(["nbdkit", plugin(), "--help"])
    # nbdkit's own help comes first; the plugin's follows its description.
    return re.findall(r"^\s*\[?([a-z][a-z-]*)=\S", out, re.M)


@test
def the_page_is_valid_pod(t):
    need_tool("podchecker")
    mentions(t.run(["podchecker", "-warnings", "-warnings", PAGE]),
             "syntax OK")


@test
def the_page_and_help_have_the_same_parameters(t):
    in_help = parameters_of_help(t)
    check(in_help, "no parameter found in --help")
    equal(sorted(in_help), sorted(parameters_of_page()),
          "parameters of --help against those of the page")


@test
def the_page_has_its_parameters_in_alphabetical_order(t):
    names = parameters_of_page()
    equal(names, sorted(names), "order of the parameters in the page")


@test
def the_code_accepts_every_documented_parameter_and_no_other(t):
    # A value that no parser takes: a known parameter complains about it, an
    # unknown one about the name.
    img = t.image()
    unknown = t.refuse(img, "no-such-parameter=1")
    complaint = unknown.replace("no-such-parameter", "")
    for name in parameters_of_page():
        if name in ("file", "metrics", "trace"):
            continue  # Any text is a path; the other tests give them.
        out = t.refuse(img, name + "=~")
        check(out.replace(name, "") != complaint,
              f"{name}= is in the page but unknown to the plugin: {out!r}")
    source = read_file(os.path.join(source_root(), "plugins",
                                    "ubd-options.c")).decode()
    table = re.findall(r'^\s*X\("([a-z][a-z-]*)",', source, re.M)
    equal(table, parameters_of_page(), "the table of ubd-options.c")


@test
def every_metric_is_in_the_page_with_its_labels_and_unit(t):
    server = t.serve(t.image())
    h = server.connect()
    h.pwrite(bytes(4096), 0)
    h.flush()
    m = server.stop()
    described = page()
    in_code = set(m.types)
    in_page = {re.sub(r"_(bucket|sum|count)$", "", name)
               if re.sub(r"_(bucket|sum|count)$", "", name) in in_code
               else name
               for name in re.findall(r"\bubd_[a-z_]*[a-z]\b",
                                      section("METRICS"))}
    equal(sorted(in_page), sorted(in_code),
          "metrics in the page against those in the file")
    for name, labels, _ in m.samples:
        for label, value in labels.items():
            if label == "le" or name == "ubd_info":
                continue
            check(value in described,
                  f"the page does not know {label}={value} of {name}")


@test
def every_mode_is_in_the_page_with_what_it_survives(t):
    text = plain(page())
    for mode in MODES + ("writeback", "writethrough", "none", "directsync"):
        check(re.search(rf"\b{mode}\b", text), f"{mode} is not in the page")
    for loss in ("killed", "guest", "power"):
        check(loss in text, f"the page does not speak of {loss!r}")


@test
def dump_plugin_tells_engine_features_and_modes(t):
    out = t.run(["nbdkit", plugin(), "--dump-plugin"])
    lines = dict(line.split("=", 1) for line in out.splitlines()
                 if "=" in line)
    equal(lines.get("name"), "ubd", "name")
    equal(lines.get("magic_config_key"), "file", "the bare first word")
    equal(lines.get("thread_model"), "parallel", "thread model")
    ours = {k: v for k, v in lines.items() if k.startswith("ubd_")}
    everything = " ".join(f"{k}={v}" for k, v in ours.items())
    mentions(everything, *MODES)
    check("io_uring" in everything, f"no word about io_uring: {ours}")


@test
def help_says_what_each_parameter_does(t):
    out = t.run(["nbdkit", plugin(), "--help"])
    mentions(out, *MODES, "io_uring", "syscalls", "file=")


main()
