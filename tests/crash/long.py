"""Hundreds of kills at random moments, over all kinds of apps.

    python -m tests.crash.long --kills 1000
    python -m tests.crash.long --kills 50 --kind csv --kind state
    python -m tests.crash.long --kills 1000 --local

Starts one app after the other, each from nothing, and kills its driver, its JVM and its Python workers at random
moments until enough of them died; then the output is compared with what grep, Python's csv and json make of the input.
About four seconds a kill on two cores, and fewer without Spark (--local).
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from tests.crash.killing import LOCALLY, KillCounts, Target, kill_until_done, watched
from tests.crash.kinds import KINDS, KilledApp, postgres_kind
from tests.operators.sink.tables.postgres_server import running_server

TARGETS: list[Target] = ["driver", "driver", "jvm", "jvm", "daemon", "worker", "worker", "worker"]
LOCAL_TARGETS: list[Target] = ["driver", "driver", "daemon", "worker", "worker"]


def main() -> int:
    """Run the kills of the command line; an AssertionError says what does not hold."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1, help="what the moments are drawn from")
    parser.add_argument("--per-app", type=int, default=16, help="kills of one app until its output is compared")
    names = [*(kind.name for kind in KINDS), "postgres"]
    parser.add_argument("--kind", action="append", choices=names, help="default: all in turn, but no server's")
    parser.add_argument("--local", action="store_true", help="runs without Spark")
    options = parser.parse_args()
    chosen = options.kind or [kind.name for kind in KINDS]
    kinds = [kind for kind in KINDS if kind.name in chosen]
    with contextlib.ExitStack() as stack:
        if "postgres" in chosen:
            kinds.append(postgres_kind(stack.enter_context(running_server()).address))
        kill(kinds, options)
    return 0


def kill(kinds: Sequence[KilledApp], options: argparse.Namespace) -> None:
    """Start one app after the other until enough of their processes died."""
    dice = random.Random(options.seed)
    started = time.monotonic()
    whole = KillCounts()
    possible, arguments = (LOCAL_TARGETS, LOCALLY) if options.local else (TARGETS, ())
    for apps, kind in enumerate(itertools.cycle(kinds), start=1):
        counts = KillCounts()
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            kind.make(folder)
            targets = dice.choices(possible, k=options.per_app)
            with watched(folder):
                before_start = functools.partial(kind.before_start, folder)
                kill_until_done(folder, dice.randrange(1 << 30), targets, counts, before_start, lambda _: arguments)
            kind.require_whole(folder)
        whole.add(counts)
        print(
            f"{time.monotonic() - started:5.0f} s, {apps} apps, all whole, {kind.name} the last: {whole.total} kills "
            f"{whole.kills}, {whole.middle} of them between the first and the last file, {whole.starts} starts",
            flush=True,
        )
        if whole.total >= options.kills:
            break


if __name__ == "__main__":
    sys.exit(main())
