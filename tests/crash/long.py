"""Hundreds of kills at random moments.

    python -m tests.crash.long --kills 300

Starts the same app again and again, each time from nothing, and kills its driver, its JVM and its Python workers
at random moments; after each app the output is compared with grep's. About four seconds a kill on two cores.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from pathlib import Path

from tests.crash.killing import KillCounts, Target, kill_until_done, make_folder, require_whole, watched

TARGETS: list[Target] = ["driver", "driver", "jvm", "jvm", "daemon", "worker", "worker", "worker"]


def main() -> int:
    """Run the kills of the command line; an AssertionError says what does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="what the moments are drawn from")
    parser.add_argument("--per-app", type=int, default=16, help="kills of one app until its output is compared")
    options = parser.parse_args()
    dice = random.Random(options.seed)
    started = time.monotonic()
    whole = KillCounts()
    apps = 0
    while whole.total < options.kills:
        apps += 1
        counts = KillCounts()
        with tempfile.TemporaryDirectory() as folder:
            make_folder(Path(folder), files=120)
            with watched(Path(folder)):
                kill_until_done(Path(folder), dice.randrange(1 << 30), dice.choices(TARGETS, k=options.per_app), counts)
            require_whole(Path(folder))
        for target, kills in counts.kills.items():
            whole.kills[target] = whole.kills.get(target, 0) + kills
        whole.middle += counts.middle
        whole.starts += counts.starts
        print(
            f"{time.monotonic() - started:5.0f} s, {apps} apps, all whole: {whole.total} kills {whole.kills}, "
            f"{whole.middle} of them between the first and the last file, {whole.starts} starts",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
