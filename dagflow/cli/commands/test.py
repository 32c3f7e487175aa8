"""`dagflow test`: runs test cases in YAML, which state the output of an app for some files."""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from dagflow.cli import output
from dagflow.cli.output import count, duration
from dagflow.spec.case_reader import AppCase
from dagflow.testing.app_cases import FILE_PREFIX, CaseFailure, failures_of, is_case_file, read_cases
from dagflow.testing.case_update import update_file

_SUFFIX = ".yaml"
PATTERN = f"{FILE_PREFIX}*{_SUFFIX}"

_OF_APPS_WITH_TESTS = rb"(?m)^operators:", rb"(?m)^tests:"


@click.command("test")
@click.argument("files", metavar="[FILE…]", nargs=-1)
@click.option("--update", is_flag=True, help="Write the published output into the tests that expect other output.")
def command(files: tuple[str, ...], update: bool) -> int:
    """Run the tests in FILE, or all tests in and below the working directory: in files test_*.yaml, and in apps.

    If FILE is an app, its tests are those in it, and in the files beside it that name it. Each test runs the app on
    files of its own in an empty directory. Nothing else is read, and nothing is published. Ends with exit code 1 if a
    test fails.
    """
    began_s = time.monotonic()
    apps = {Path(file).resolve() for file in files if not is_case_file(file)}
    test_files: list[str] = []
    for file in files:
        beside = () if is_case_file(file) else sorted(Path(file).parent.glob(PATTERN))
        test_files += [file, *map(str, beside)]
    cases = [
        case
        for file in dict.fromkeys(test_files if files else _found_below("."))
        for case in read_cases(file)
        if not files or case.place.file in files or case.app.resolve() in apps
    ]
    if not cases:
        raise click.UsageError(f"there is no test: tests of an app are in files {PATTERN} beside it, or in its `tests`")
    failures = {index: found for index, case in enumerate(cases) if (found := failures_of(case))}
    if update and failures:
        failures = _updated(cases, failures)
    for each in failures.values():
        output.result("\n".join(map(str, each)))
    took = duration(time.monotonic() - began_s)
    output.note(f"{count(len(cases) - len(failures), 'test')} passed, {len(failures):,} failed in {took}")
    return 1 if failures else 0


def _updated(cases: Sequence[AppCase], failures: dict[int, list[CaseFailure]]) -> dict[int, list[CaseFailure]]:
    """Write the current results into the files as the expected ones; returns the remaining failures."""
    for file in dict.fromkeys(case.place.file for case in cases):
        found = [each for index, of in failures.items() if cases[index].place.file == file for each in of]
        if written := update_file(file, [each.actual for each in found if each.actual is not None]):
            output.note(f"{file}: {count(written, 'value')} updated")
    again = {(case.place.file, case.name): case for file in {c.place.file for c in cases} for case in read_cases(file)}
    left = {index: failures_of(again[cases[index].place.file, cases[index].name]) for index in failures}
    return {index: found for index, found in left.items() if found}


def _found_below(directory: str) -> Iterator[str]:
    """Files of tests, and apps with tests, but for those of packages and tools in hidden directories."""
    for folder, directories, names in os.walk(directory):
        directories[:] = sorted(name for name in directories if not name.startswith("."))
        for name in sorted(names):
            path = os.path.normpath(os.path.join(folder, name))
            if not name.endswith(_SUFFIX):
                continue
            with contextlib.suppress(OSError):
                if is_case_file(path) or all(map(re.search, _OF_APPS_WITH_TESTS, [Path(path).read_bytes()] * 2)):
                    yield path
