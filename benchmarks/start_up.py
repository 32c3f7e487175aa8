"""How long commands take before they work: whole commands side by side, and a run on Spark phase by phase.

    python -m benchmarks.start_up --rounds 5

Wall time depends on what else the machine does, so the seconds of CPU time are told as well. The input is the sample of
the repository: three files of 22 KiB.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.measuring import range_of, table

ROOT = Path(__file__).resolve().parent.parent
APP = str(ROOT / "apps" / "block_reader.yaml")
LOGS = f"splitter.files={ROOT / 'data' / 'logs'}"

COMMANDS = {
    "dagflow --help": ["--help"],
    "dagflow validate": ["validate", APP],
    "dagflow preview": ["preview", APP, "--set", LOGS],
    "dagflow run --local": ["run", APP, "--set", LOGS, "--local", "--fresh", "-q"],
    "dagflow run --local, nothing new": ["run", APP, "--set", LOGS, "--local", "-q"],
    "dagflow run --local --workers 1": ["run", APP, "--set", LOGS, "--local", "--workers", "1", "--fresh", "-q"],
    "dagflow run": ["run", APP, "--set", LOGS, "--fresh", "-q"],
}

PHASES = {
    "Python and imports": ("", ""),
    "the app is read": ("dagflow.cli.app_run", "load"),
    "Java starts": ("dagflow.runtime.spark_context", "SparkProcess"),
    "Spark's context": ("dagflow.runtime.spark_context", "_context"),
    "the first window, with the first Python worker": ("dagflow.engine.driver.Driver", "_commit_oldest"),
    "the end of the processes": ("dagflow.runtime.base.LazyRuntime", "close"),
}
"""What is timed: functions of a run, by what they do."""


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--phases", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.phases is not None:
        run_phases(options.phases)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    with tempfile.TemporaryDirectory() as directory:
        call = Caller(directory, environ)
        for arguments in COMMANDS.values():
            call(arguments)  # compiles modules, and fills the page cache
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in COMMANDS}
        phases: list[dict[str, float]] = []
        for _ in range(options.rounds):
            for name, arguments in COMMANDS.items():
                seconds[name].append(call(arguments))
            phases.append(call.phases(COMMANDS["dagflow run"]))
    print(f"{options.rounds} rounds in turn, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores\n")
    rows = []
    for name, measured in seconds.items():
        walls, cpus = zip(*measured, strict=True)
        middle, cpu = statistics.median(walls), statistics.median(cpus)
        rows.append((f"`{name}`", f"{middle:.2f} s", range_of(walls), f"{cpu:.2f} s"))
    print(table(("command", "median", "range", "CPU time"), rows))
    print()
    medians = [(name, statistics.median(each.get(name, 0.0) for each in phases)) for name in (*PHASES, "all else")]
    print(table(("phase of a run on Spark", "median"), [(name, f"{middle:.2f} s") for name, middle in medians]))


class Caller:
    """Runs commands of dagflow in a directory.

    Args:
        directory: The working directory, with the output.
        environ: The environment.
    """

    def __init__(self, directory: str, environ: dict[str, str]) -> None:
        self._directory = directory
        self._environ = environ

    def __call__(self, arguments: list[str]) -> tuple[float, float]:
        """Wall time and CPU time of a command, its processes among them."""
        before, began_s = _cpu_s(), time.monotonic()
        self._run([sys.executable, "-m", "dagflow.cli", *arguments])
        return time.monotonic() - began_s, _cpu_s() - before

    def phases(self, arguments: list[str]) -> dict[str, float]:
        """Seconds of each phase of a run."""
        said = self._run([sys.executable, "-m", "benchmarks.start_up", "--phases", str(time.time()), *arguments])
        found: dict[str, float] = json.loads(said.splitlines()[-1])
        return found

    def _run(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self._directory, env=self._environ, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.exit(f"{' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
        return done.stdout


def _cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_phases(arguments: list[str]) -> None:
    """Be a run that times its phases; prints them as JSON, and ends the process.

    Args:
        arguments: When the process was started, in seconds since 1970, and those of the command line.
    """
    began_s, taken = float(arguments[0]), {}
    for module in ("dagflow.cli.main", "dagflow.cli.app_run", "dagflow.runtime.spark_context"):
        importlib.import_module(module)
    taken["Python and imports"] = time.time() - began_s
    for phase, (place, name) in PHASES.items():
        if place:
            _time(_found(place), name, phase, taken)
    try:
        sys.modules["dagflow.cli.main"].command_line.main(arguments[1:])
    finally:
        taken["all else"] = time.time() - began_s - sum(taken.values())
        print(json.dumps(taken))


def _found(place: str) -> Any:
    module, _, name = place.rpartition(".")
    return getattr(sys.modules[module], name) if name[0].isupper() else sys.modules[place]


def _time(owner: Any, name: str, phase: str, taken: dict[str, float]) -> None:
    """Have a function add its seconds to a phase; only its first call counts."""
    function: Callable[..., Any] = getattr(owner, name)

    def timed(*arguments: Any, **options: Any) -> Any:
        began_s = time.monotonic()
        try:
            return function(*arguments, **options)
        finally:
            taken.setdefault(phase, time.monotonic() - began_s)

    setattr(owner, name, timed)


if __name__ == "__main__":
    main()
