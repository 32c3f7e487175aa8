"""`dagflow test`: cases in YAML of what an app makes of some files."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.figures import count, duration
from dagflow.cli.shared_options import verbose_option
from dagflow.testing.app_cases import AppCase, failures_of, read_cases

PATTERN = "test_*.yaml"


@click.command("test")
@click.argument("files", metavar="[FILE…]", nargs=-1)
@verbose_option
def command(files: tuple[str, ...]) -> int:
    """Run the tests in FILE, or in all files test_*.yaml of and below the working directory.

    Where FILE is an app, its tests are those files beside it that name it. Each test runs the app on files of its own
    in an empty directory. Nothing else is read, and nothing is published. Ends with exit code 1 where a test fails.
    """
    began_s = time.monotonic()
    cases = [case for file in _test_files(files) for case in read_cases(file) if _is_asked_for(case, files)]
    if not cases:
        raise click.UsageError(f"there is no test: tests of an app are in files {PATTERN} beside it")
    failed = 0
    for case in cases:
        failures = failures_of(case)
        failed += bool(failures)
        for failure in failures:
            output.result(str(failure))
    took = duration(time.monotonic() - began_s)
    output.note(f"{count(len(cases) - failed, 'test')} passed, {failed:,} failed in {took}")
    return 1 if failed else 0


def _is_app(file: str) -> bool:
    return not Path(file).name.startswith("test_")


def _test_files(files: Sequence[str]) -> list[str]:
    found = [] if files else [str(path) for path in sorted(Path().rglob(PATTERN))]
    for file in files:
        found += map(str, sorted(Path(file).parent.glob(PATTERN))) if _is_app(file) else [file]
    return list(dict.fromkeys(found))


def _is_asked_for(case: AppCase, files: Sequence[str]) -> bool:
    """Whether a case is of one of the apps that were named, or in one of the files."""
    if not files or case.place.file in files:
        return True
    return any(_is_app(file) and Path(file).resolve() == case.app.resolve() for file in files)
