#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# The figures of slices: servers of known ratios, on a machine whose speed
# changes tenfold from cycle to cycle, and with a slice that went wrong.

. "$(dirname "$0")/lib.sh"

PYTHONPATH=$src/scripts python3 -B - <<'END' || fail "see above"
import random
from benchlib import paired

rnd = random.Random(1)
cycles = []
for i in range(101):
    machine = rnd.uniform(100, 1000)
    cycles.append([machine, machine * 1.02, machine * 4])
cycles[7][1] = 0.0  # A server that was held up for a whole slice,
cycles[8][0] *= 50  # and a clock that was not.
a, b, c = paired.effects(cycles)
for ratio, expected in ((b / a, 1.02), (c / a, 4)):
    if abs(ratio / expected - 1) > 1e-6:
        raise SystemExit("ratio %r, expected %r" % (ratio, expected))
if not 100 < a < 1000:
    raise SystemExit("rate %r, expected one of those that were" % a)
END
