"""Shared parts of the benchmarks: rounds in turn, medians and ranges, promises, memory, own processes."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

WARM_UP_ROUNDS = 2

# dagflow switches off Java's second compiler in local runs, which Spark SQL needs to be fast.
SPARKS_JAVA = {"spark.driver.defaultJavaOptions": ""}
"""Settings that start Java as Spark does, for sessions in which Spark's own contenders run."""


class Promise(NamedTuple):
    """How much faster one contender must be than another.

    Attributes:
        name: The faster contender.
        factor: Least ratio of the other's median to its own.
        other: The slower contender.
    """

    name: str
    factor: float
    other: str


def in_turn(names: Iterable[str], measure: Callable[[str], float], rounds: int) -> dict[str, list[float]]:
    """Measure contenders one after the other in each round, so that the machine's moods hit all of them.

    Args:
        names: The contenders.
        measure: Runs one contender, and returns its seconds.
        rounds: How many rounds.

    Returns:
        The seconds of each round by contender.
    """
    names = list(names)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for number in range(rounds):
        for name in names:
            seconds[name].append(measure(name))
            print(f"round {number + 1}: {name} {seconds[name][-1]:.2f} s", file=sys.stderr, flush=True)
    return seconds


def medians(seconds: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of each contender."""
    return {name: statistics.median(values) for name, values in seconds.items()}


def range_of(values: Sequence[float]) -> str:
    """Return the smallest and the largest of some seconds, as text."""
    return f"{min(values):.2f} to {max(values):.2f}"


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a Markdown table."""
    lines = [heads, ["---"] * len(heads), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def check(holds: bool, text: str) -> bool:
    """Print whether a promise holds, and return it."""
    print(f"{'ok  ' if holds else 'FAIL'} {text}")
    return holds


def check_promises(promises: Iterable[Promise], median: Mapping[str, float]) -> bool:
    """Print for each promise whether it holds; return whether all do. Contenders may be missing."""
    all_hold = True
    for name, factor, other in (each for each in promises if each.other in median):
        ratio = median[other] / median[name]
        all_hold &= check(ratio >= factor, f"{name} / {other}: {ratio:.2f}, promised {factor}")
    return all_hold


def in_own_process(module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """Run a benchmark's step in a process of its own, so that its memory and caches are its own.

    Args:
        module: Name of a module in this package.
        arguments: Its command line.
        environment: Its environment; None for that of this process.

    Returns:
        The JSON object in the last line that it prints.
    """
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    answer = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True, env=environment).stdout
    found: dict[str, Any] = json.loads(answer.splitlines()[-1])
    return found


def peak_mib(pid: int | str = "self") -> float:
    """Return the largest resident memory of a process so far, in MiB."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1024


def touch_memory(path: Path, size_bytes: int) -> None:
    """Fill as much of the page cache as an output will need, and free it.

    A virtual machine may return memory to its host that was unused for two seconds. Getting 1 GB of it back takes
    half a second or two, which a contender after a slow one would have to pay.

    Args:
        path: A file to write to; it is removed.
        size_bytes: How large the output will be.
    """
    with path.open("wb") as file:
        for _ in range(size_bytes >> 20):
            file.write(bytes(1 << 20))
    path.unlink()
