"""Writes the logs of a web shop as it is visited, for apps/follow_logs.yaml.

Some lines are no requests, as in real logs, and one file has a name that the app does not take.

    python apps/log_generator.py out/live_logs --lines-per-second 2000
"""

from __future__ import annotations

import argparse
import json
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

PAGES = ("/", "/cart", "/search", *(f"/item/{number}" for number in range(1, 40)))
HOSTS = (*(f"10.0.{net}.{host}" for net in range(4) for host in range(1, 60)), *(f"bot-{n}" for n in range(30)))
TURNS_PER_SECOND = 10


def lines(seed: int) -> Iterator[str]:
    """Requests without end, and now and then a line of another kind; the same ones for the same seed, but their times.

    Args:
        seed: Number of the file.
    """
    chance = random.Random(seed)
    while True:
        if chance.random() < 0.0005:
            yield f"upstream worker {chance.randrange(8)} restarted\n"
            continue
        now = datetime.now(UTC) - timedelta(milliseconds=chance.randrange(100))
        request = {
            "at": now.isoformat(timespec="milliseconds"),
            "host": chance.choice(HOSTS),
            "page": chance.choice(PAGES),
            "code": chance.choice((200, 200, 200, 304, 404, 500)),
            "bytes": chance.randrange(90_000),
            "millis": int(chance.expovariate(0.02)),
        }
        yield f"{json.dumps(request)}\n"


def write(folder: Path, lines_per_second: int, lines_per_file: int, seconds: float | None) -> None:
    """Append to one file after the other.

    Args:
        folder: Where the files are, `web-0001.log` and so on.
        lines_per_second: How many lines are written in a second, about.
        lines_per_file: After so many lines the next file begins.
        seconds: When to stop; None for never.
    """
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    number = len(list(folder.glob("web-*.log")))
    while True:
        number += 1
        source = lines(number)
        with (folder / f"web-{number:04}.log").open("a") as file:
            for written in range(0, lines_per_file, max(lines_per_second // TURNS_PER_SECOND, 1)):
                if seconds is not None and time.monotonic() - started > seconds:
                    return
                count = min(max(lines_per_second // TURNS_PER_SECOND, 1), lines_per_file - written)
                file.writelines(next(source) for _ in range(count))
                file.flush()
                time.sleep(1 / TURNS_PER_SECOND)


def main() -> None:
    """Read the command line, and write until Ctrl-C."""
    parser = argparse.ArgumentParser(description="Writes web logs into a directory that an app follows.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--lines-per-second", type=int, default=2000)
    parser.add_argument("--lines-per-file", type=int, default=20_000)
    parser.add_argument("--seconds", type=float, help="stop after this many seconds; default: run until stopped")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    source = lines(0)
    # The copy of an editor, or of an operator in a hurry: the app's pattern leaves it out.
    (asked.folder / "web-0000.log.bak").write_text("".join(next(source) for _ in range(1000)))
    with suppress(KeyboardInterrupt):
        write(asked.folder, asked.lines_per_second, asked.lines_per_file, asked.seconds)


if __name__ == "__main__":
    main()
