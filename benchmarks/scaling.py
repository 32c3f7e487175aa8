"""Time and memory by bytes, blocks, windows and partitions, and the load of a large cluster's driver.

    python -m benchmarks.scaling                              about five minutes
    python -m benchmarks.scaling --large                      up to 32 GB, a million blocks read, 1,000 windows on Spark
    python -m benchmarks.scaling --only windows,commits --json figures.json
    python -m benchmarks.scaling --draw figures.json --svg docs/scaling.svg

Each measurement is a process of its own that starts Spark, runs a small app to warm up, and then the measured app. The
input is one file under several names, so that all bytes are read and the page cache holds them; a filter drops every
line. Rows marked "driver" use a runtime that answers every window at once: only the driver's own work remains. With
several rounds the table shows medians. --json adds to the figures in the file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.measuring import in_own_process
from benchmarks.scaling_steps import ScalingStep
from benchmarks.svg_panels import Panel, drawing

GB = 1_000_000_000
SMALL_BLOCK_BYTES = 1000
Figures = dict[str, list[dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Series:
    """Measurements in which one quantity grows.

    Attributes:
        unit: The quantity.
        usual: Steps by quantity.
        large: Further steps, which take minutes.
    """

    unit: str
    usual: Mapping[int, ScalingStep]
    large: Mapping[int, ScalingStep]


def _bytes(count: int) -> ScalingStep:
    return ScalingStep(files=count, file_bytes=GB)


def _blocks(count: int, runtime: str) -> ScalingStep:
    # Default window size, so that the number of windows grows with the blocks.
    return ScalingStep(file_bytes=count * SMALL_BLOCK_BYTES, block_bytes=SMALL_BLOCK_BYTES, runtime=runtime)


def _windows(count: int, runtime: str) -> ScalingStep:
    size = 4 * SMALL_BLOCK_BYTES
    return ScalingStep(file_bytes=count * size, block_bytes=SMALL_BLOCK_BYTES, blocks_per_window=4, runtime=runtime)


def _partitions(count: int) -> ScalingStep:
    return ScalingStep(files=2, file_bytes=GB, block_bytes=16 << 20, partitions=count)


def _commits(files: int) -> ScalingStep:
    """Ten windows of a thousand partitions, each with a number of output files."""
    return ScalingStep(
        file_bytes=10_000 * SMALL_BLOCK_BYTES,
        block_bytes=SMALL_BLOCK_BYTES,
        blocks_per_window=1000,
        partitions=1000,
        cores=1000,
        runtime="instant",
        files_per_partition=files,
    )


def _tasks(count: int) -> ScalingStep:
    """Four windows of a number of partitions on 64 slots; each partition sleeps for a second."""
    return ScalingStep(
        file_bytes=4 * count * SMALL_BLOCK_BYTES,
        block_bytes=SMALL_BLOCK_BYTES,
        blocks_per_window=count,
        partitions=count,
        cores=64,
        sleep_s=1.0,
    )


def _each(make: object, *counts: int, **more: str) -> dict[int, ScalingStep]:
    return {count: make(count, **more) for count in counts}  # type: ignore[operator]  # each takes a count


SERIES = {
    "bytes": Series("GB", _each(_bytes, 1, 2, 4, 8), _each(_bytes, 16, 32)),
    "blocks": Series(
        "blocks",
        _each(_blocks, 1, 10, 100, 1000, 10_000, 100_000, runtime="spark"),
        _each(_blocks, 1_000_000, runtime="spark"),
    ),
    "blocks, driver": Series(
        "blocks", _each(_blocks, 1, 10, 100, 1000, 10_000, 100_000, 1_000_000, runtime="instant"), {}
    ),
    "windows": Series(
        "windows", _each(_windows, 1, 10, 100, runtime="spark"), _each(_windows, 1000, 4000, runtime="spark")
    ),
    "windows, driver": Series(
        "windows", _each(_windows, 1, 10, 100, 1000, runtime="instant"), _each(_windows, 10_000, runtime="instant")
    ),
    "partitions": Series("partitions", _each(_partitions, 1, 2, 4, 8, 16), {}),
    "commits": Series("files of a partition", _each(_commits, 0, 1, 2), {}),
    "tasks": Series("partitions", _each(_tasks, 64, 128), _each(_tasks, 256, 1024)),
}
"""All series by name."""


def measured(step: ScalingStep, rounds: int) -> dict[str, float]:
    """Return the medians of several rounds, each in a process of its own."""
    found = [in_own_process("scaling_steps", json.dumps(asdict(step))) for _ in range(rounds)]
    return {name: statistics.median(one[name] for one in found) for name in found[0]}


def print_rows(name: str, rows: Sequence[Mapping[str, float]]) -> None:
    """Print a table of seconds, cost of each further unit, and memory."""
    unit = SERIES[name].unit
    print(
        f"\n{name}\n| {unit} | seconds | driver's CPU s | each further one, ms | driver MiB | JVM heap MiB | windows |"
    )
    print("|---|---|---|---|---|---|---|")
    for before, row in zip([None, *rows[:-1]], rows, strict=True):
        more = ""
        if before is not None:
            more = f"{(row['seconds'] - before['seconds']) / (row['count'] - before['count']) * 1000:.3f}"
        heap = f"{row['jvm_mib']:.0f}" if "jvm_mib" in row else ""
        print(
            f"| {row['count']:,.0f} | {row['seconds']:.2f} | {row['driver_cpu_s']:.2f} | {more} "
            f"| {row['driver_mib']:.0f} | {heap} | {row['windows']:.0f} |"
        )


def draw(figures: Figures) -> str:
    """Draw time above and memory below, for each quantity."""
    columns = {
        "GB of input": ["bytes"],
        "blocks": ["blocks", "blocks, driver"],
        "windows": ["windows", "windows, driver"],
        "partitions, 2 GB": ["partitions"],
    }
    panels = []
    for what, key in (("seconds", "seconds"), ("driver's MiB", "driver_mib")):
        for title, names in columns.items():
            lines = {
                "driver alone" if name.endswith("driver") else "on Spark": [
                    (row["count"], row[key]) for row in figures[name]
                ]
                for name in names
                if name in figures
            }
            panels.append(Panel(f"{what}: {title}", lines, is_flat=key != "seconds"))
    return drawing(panels, len(columns))


def known(path: Path | None) -> Figures:
    """Return the figures of a file, or none."""
    return json.loads(path.read_text()) if path is not None and path.exists() else {}


def main() -> None:
    """Measure, print, and draw."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--large", action="store_true", help="also what takes minutes")
    parser.add_argument("--only", default=",".join(name.replace(", ", "-") for name in SERIES), help="series, by comma")
    parser.add_argument("--counts", help="these counts of the series alone, by comma")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--json", type=Path, help="where the figures are kept")
    parser.add_argument("--draw", type=Path, metavar="JSON", help="draw these figures and measure nothing")
    parser.add_argument("--svg", type=Path, help="where the drawing goes")
    options = parser.parse_args()
    figures = known(options.draw or options.json)
    for name in [] if options.draw else options.only.split(","):
        name = name.replace("-", ", ")
        steps = {**SERIES[name].usual, **(SERIES[name].large if options.large else {})}
        wanted = [int(count) for count in options.counts.split(",")] if options.counts else list(steps)
        rows = {row["count"]: row for row in figures.get(name, [])}
        for count in wanted:
            rows[count] = {"count": count, **measured(steps[count], options.rounds)}
            print(f"{name}: {count}: {rows[count]['seconds']:.2f} s", file=sys.stderr, flush=True)
            figures[name] = [rows[count] for count in sorted(rows)]
            if options.json is not None:
                options.json.write_text(json.dumps(figures, indent=1))
    for name, found in figures.items():
        print_rows(name, found)
    if options.svg is not None:
        options.svg.write_text(draw(figures))


if __name__ == "__main__":
    main()
