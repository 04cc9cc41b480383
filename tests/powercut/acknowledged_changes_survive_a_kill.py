# SPDX-License-Identifier: BSD-3-Clause
"""kill -9 of the server, at an acknowledgement under load: what it had
acknowledged is in the file, in every cache mode, flushed or not; for it was in
the host's page cache, and nowhere in the server alone.

The argument says how many kills, over all modes.
"""

import os
import random
import sys

import rig
import swarm

FS = "ext4"


def draw(seed, mode):
    """Like a cut, but everything acknowledged is promised."""
    cut = swarm.Cut(FS, mode, seed)
    load = dict(cut.load, promise="always", go_on=0)
    for name in ("begin", "cut"):
        load.pop(name, None)
    rng = random.Random(seed)
    load["acks"] = rng.randint(1, load["requests"])
    return cut, load


def kill_one(folder, cut, load, image):
    options = [f"{k}={v}" for k, v in cut.server.items()]
    server = rig.Server(folder, image, options)
    client = rig.Client({**load, "socket": server.socket,
                         "kill": server.process.pid})
    try:
        result = client.answer()
        server.process.wait()
        result.update(client.check(image))
        said = client.end()
    except rig.Broken as e:
        client.kill()
        raise rig.Broken(f"{e}; the server said: {server.log()}") from e
    finally:
        server.kill()
    if result["lost"] + result["foreign"]:
        print(f"{cut.mode}, seed {cut.seed}:\n{said}\n    {cut.describe()}")
    return result


def main():
    kills = int(sys.argv[1])
    rig.check_host([FS])
    rig.enter_namespace()
    pristine = rig.Pristine(FS)
    path = os.path.join(rig.DIR, "disk")
    lost = acked = 0
    modes = list(swarm.MODES)
    with open(path, "wb") as f:
        f.truncate(pristine.size)
    for seed in range(1, kills + 1):
        cut, load = draw(seed, modes[seed % len(modes)])
        pristine.write(path)
        at = rig.Mounted(FS, rig.DIR, path, cut.image, options=cut.fs_options,
                         direct=False)
        try:
            result = kill_one(rig.DIR, cut, load, at.image)
        finally:
            at.close()
        lost += result["lost"] + result["foreign"]
        acked += result["acked"]
    print(f"{kills} kills, {acked} changes acknowledged, {lost} sectors lost")
    return 1 if lost or not acked else 0


if __name__ == "__main__":
    sys.exit(main())
