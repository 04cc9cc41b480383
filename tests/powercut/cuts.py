# SPDX-License-Identifier: BSD-3-Clause
"""Power cuts under a random load of sectors that describe themselves."""

import rig
import swarm

STACKS = rig.STACKS
MODES = list(swarm.MODES)
COLUMNS = ["operations", "flushes", "acked", "promised", "sectors", "mixed"]
PROGRAMS = ()


def make_pristine(stack):
    return rig.Pristine(stack)


def make_cut(stack, mode, seed, args):
    return swarm.Cut(stack, mode, seed, args.all_failures, args.mutant)


def load(cut, disk, mutant):
    """Run the load until the power is off; the client, and what it said."""
    image = disk.boot(cut.image, cut.fs_options, restore=True)
    server = rig.Server(disk.folder, image,
                        [f"{k}={v}" for k, v in cut.server.items()], mutant)
    client = result = None
    try:
        settings = " ".join(f"{k}={v}" for k, v in cut.disk.items())
        disk.model.ask("set " + settings)
        before = disk.model.ask("stats")["ops"]
        client = rig.Client({**cut.load, "socket": server.socket,
                             "control": disk.model.socket})
        result = client.answer()
        result["operations"] = disk.model.ask("stats")["ops"] - before
    except rig.Broken as e:
        raise rig.Broken(f"{e}; the server said: {server.log()}") from e
    finally:
        server.kill()
        if client and not result:
            client.kill()
    return client, result


def run_cut(cut, disk, mutant):
    client, result = load(cut, disk, mutant)
    try:
        disk.down()
        disk.heal()
        image = disk.boot(cut.image, cut.fs_options)
        result.update(client.check(image))
        disk.down()
    except BaseException:
        client.kill()
        raise
    result["said"] = client.end()
    result["losses"] = result["lost"] + result["foreign"]
    return result
