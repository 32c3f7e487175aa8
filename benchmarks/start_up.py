"""How long commands take before they work: whole commands side by side, and a run on Spark moment by moment.

    python -m benchmarks.start_up --rounds 5
    python -m benchmarks.start_up --rounds 15 --checks      # --help, preview, and validate of each app of apps/

Wall time depends on what else the machine does, so CPU seconds are printed as well. The input is the sample of
the repository: three files of 22 KiB, and for `validate` that of each app.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
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

CHECKS = {
    "dagflow --help": ["--help"],
    "dagflow preview": ["preview", APP, "--set", LOGS],
    **{f"dagflow validate {app.stem}": ["validate", str(app)] for app in sorted((ROOT / "apps").glob("*.yaml"))},
}
RUNS = {
    "dagflow run --local": ["run", APP, "--set", LOGS, "--local", "--fresh", "-q"],
    "dagflow run --local, nothing new": ["run", APP, "--set", LOGS, "--local", "-q"],
    "dagflow run --local --workers 1": ["run", APP, "--set", LOGS, "--local", "--workers", "1", "--fresh", "-q"],
    "dagflow run": ["run", APP, "--set", LOGS, "--fresh", "-q"],
}

MOMENTS = {
    "Java is launched": ("dagflow.runtime.spark_process.SparkProcess", "_launched"),
    "the app is read": ("dagflow.cli.app_run", "load"),
    "the first window is planned": ("dagflow.engine.window_planner.WindowPlanner", "plan_next"),
    "Java is ready": ("dagflow.runtime.spark_process.SparkProcess", "_address"),
    "Spark's context is there": ("dagflow.runtime.spark_context", "_context"),
    "the first task reports": ("dagflow.runtime.progress_board.ProgressBoard", "record"),
    "the first window is committed": ("dagflow.engine.driver.Driver", "_commit_oldest"),
    "all processes have ended": ("dagflow.runtime.base.LazyRuntime", "close"),
}
"""What a run on Spark is timed by: the first return of a function."""


def main() -> None:
    """Measure, and print two tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--checks", action="store_true", help="measure no runs")
    parser.add_argument("--moments", nargs=argparse.REMAINDER, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.moments is not None:
        run_timed(options.moments)
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])}
    environ.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as directory:
        (Path(directory) / "data").symlink_to(ROOT / "data")
        call = CommandRunner(directory, environ)
        commands = CHECKS if options.checks else {**CHECKS, **RUNS}
        for arguments in commands.values():
            call(arguments)  # compiles modules, and fills the page cache
        seconds: dict[str, list[tuple[float, float]]] = {name: [] for name in commands}
        moments: list[dict[str, float]] = []
        for _ in range(options.rounds):
            for name, arguments in commands.items():
                seconds[name].append(call(arguments))
            if not options.checks:
                moments.append(call.moments(RUNS["dagflow run"]))
    print(f"{options.rounds} rounds in turn, load {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores\n")
    rows = []
    for name, measured in seconds.items():
        walls, cpus = zip(*measured, strict=True)
        middle, cpu = statistics.median(walls), statistics.median(cpus)
        rows.append((f"`{name}`", f"{middle:.2f} s", range_of(walls), f"{cpu:.2f} s"))
    print(table(("command", "median", "range", "CPU time"), rows))
    if not moments:
        return
    print()
    medians = {name: statistics.median(each[name] for each in moments) for name in MOMENTS}
    in_order = sorted(medians.items(), key=lambda each: each[1])
    print(table(("a run on Spark", "median"), [(name, f"{after:.2f} s") for name, after in in_order]))


class CommandRunner:
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
        self._run([sys.executable, "-m", "dagflow", *arguments])
        return time.monotonic() - began_s, _cpu_s() - before

    def moments(self, arguments: list[str]) -> dict[str, float]:
        """When each moment of a run came, in seconds since its process was started."""
        said = self._run([sys.executable, "-m", "benchmarks.start_up", "--moments", str(time.time()), *arguments])
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


def run_timed(arguments: list[str]) -> None:
    """Be a run that notes its moments; prints them as JSON, and ends the process.

    Args:
        arguments: When the process was started, in seconds since 1970, and those of the command line.
    """
    began_s = float(arguments[0])
    noted: dict[str, float] = {}

    def note(moment: str) -> None:
        noted.setdefault(moment, time.time() - began_s)

    # A module is imported when the run imports it, and changed then.
    finder = MomentRecorder(note)
    sys.meta_path.insert(0, finder)
    try:
        importlib.import_module("dagflow.cli.main").command_line.main(arguments[1:])
    finally:
        print(json.dumps(noted))


class MomentRecorder(importlib.abc.MetaPathFinder):
    """Has the functions of MOMENTS note their first return, in modules that are imported from now on.

    Args:
        note: Takes the name of a moment.
    """

    def __init__(self, note: Callable[[str], None]) -> None:
        self._note = note

    def find_spec(self, name: str, path: Any, target: Any = None) -> Any:
        """The module as it is found otherwise, with a loader that changes it."""
        found = {moment: place for moment, place in MOMENTS.items() if _module_of(place[0]) == name}
        spec = importlib.machinery.PathFinder.find_spec(name, path) if found else None
        if spec is not None and spec.loader is not None:
            execute = spec.loader.exec_module

            def changed(module: Any) -> None:
                execute(module)
                for moment, (place, function) in found.items():
                    owner = getattr(module, place.rpartition(".")[2]) if place != name else module
                    self._change(owner, function, moment)

            spec.loader.exec_module = changed  # type: ignore[method-assign]  # of this one loader
        return spec

    def _change(self, owner: Any, name: str, moment: str) -> None:
        function: Callable[..., Any] = getattr(owner, name)

        def noted(*arguments: Any, **options: Any) -> Any:
            try:
                return function(*arguments, **options)
            finally:
                self._note(moment)

        setattr(owner, name, noted)


def _module_of(place: str) -> str:
    """The module of a class or a module."""
    module, _, name = place.rpartition(".")
    return module if name[0].isupper() else place


if __name__ == "__main__":
    main()
