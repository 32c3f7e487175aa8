"""Runs the test cases of an app on files, and reports differences."""

from __future__ import annotations

import contextlib
import difflib
import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from dagflow.api.control import ControlOperator
from dagflow.api.operator import defines
from dagflow.engine.preview import preview
from dagflow.engine.preview_chain import PreviewOptions
from dagflow.errors import DagflowError, PlanError, SpecError
from dagflow.frozen import frozen
from dagflow.plan.logical import LogicalPlan
from dagflow.report.published_rows import is_parquet
from dagflow.spec.case_reader import AppCase, CaseReader, Expected
from dagflow.spec.problems import Place, Problems
from dagflow.spec.yaml_parser import parse_file
from dagflow.spec.yaml_tree import Environment
from dagflow.spec.yaml_tree import Mapping as MappingNode
from dagflow.testing.apps import AppFolder, AppOutputs, comparable, sorted_lines, with_types_of
from dagflow.testing.faults import InjectedCrash, crashing_disk

FILE_PREFIX = "test_"
"""Prefix of names of test files; other files are apps, which may have tests of their own."""

_MOST_REASONS = 1000


@frozen
class Actual:
    """A value that a case would have to state.

    Attributes:
        path: The keys that lead to the value in the file.
    """

    path: tuple[str, ...]
    value: Any


@frozen
class CaseFailure:
    """A difference between a case and the output of its app.

    Attributes:
        place: Where the case states the value.
        actual: The value that it would have to state; None where that is no remedy.
    """

    place: Place
    message: str
    actual: Actual | None = None

    def __str__(self) -> str:
        return f"{self.place.file}:{self.place.line}: {self.message}"


def is_case_file(file: str) -> bool:
    """Whether a file has only tests, and is no app."""
    return Path(file).name.startswith(FILE_PREFIX)


def read_cases(file: str) -> list[AppCase]:
    """The cases of a file of tests, or of an app.

    Raises:
        SpecError: Every mistake in the file; for an app, every mistake in its tests.
    """
    problems = Problems()
    environment = Environment(os.environ)
    root = parse_file(file, environment, problems)
    reader = CaseReader((), environment, problems)
    cases: list[AppCase] = []
    if root is not None and is_case_file(file):
        cases = reader.file(root, file)
    elif isinstance(root, MappingNode):
        cases = reader.cases(root, Path(file), Path(file).parent)
    if problems:
        raise SpecError(problems.found)
    return cases


def failures_of(case: AppCase) -> list[CaseFailure]:
    """Run a case; returns the differences from what it states, none where it holds."""
    who = f"test '{case.name}'"
    try:
        files = {path: file.content() for path, file in case.files.items()}
    except OSError as error:
        return [CaseFailure(case.place, f"{who}: {error.filename}: {error.strerror}")]
    except ValueError as error:  # about the name of a file that it copies
        return [CaseFailure(case.place, f"{who}: {error}")]
    folder = AppFolder(case.app, files, set=case.set)
    try:
        with folder:
            done = folder.outputs(folder.run())
            schemas = {port: _schema_at(folder, port) for port in case.schema}
            asks_why = case.rejected is not None and isinstance(case.rejected.value, list)
            reasons = _reasons(folder) if asks_why else []
    except (DagflowError, ValueError) as error:
        why = folder.as_in_test(str(error))
        if case.error is None:
            return [CaseFailure(case.place, f"{who}: the run failed: {why}")]
        if case.error.value in why:
            return []
        return [CaseFailure(case.error.place, f"{who}: expected '{case.error.value}' in: {why}")]
    if case.error is not None:
        return [CaseFailure(case.error.place, f"{who}: the run did not fail")]
    found = [*_differences(case, done), *_of_schemas(case, schemas), *_of_rejects(case, done, reasons)]
    failures = sorted(found, key=lambda failure: failure.place.line) or list(_repeated(case, files, done))
    return [replace(failure, message=f"{who}: {failure.message}") for failure in failures]


def _schema_at(folder: AppFolder, port: str) -> dict[str, str] | str:
    """The types of the columns at a port; why there are none, where there is no such port."""
    try:
        found = preview(folder.plan(), PreviewOptions(port, read_bytes=1 << 62))
    except PlanError as error:
        return "\n    ".join([*(problem.message for problem in error.problems), *filter(None, [error.hint])])
    if found.error is not None:
        raise found.error
    return dict(found.columns)


def _reasons(folder: AppFolder) -> list[str]:
    """Why readers refuse records, in the order of the records."""
    found = preview(folder.plan(), PreviewOptions(records=_MOST_REASONS, read_bytes=1 << 62))
    return [reject.reason for reject in found.rejects]


def _differences(case: AppCase, done: AppOutputs) -> Iterator[CaseFailure]:
    for port, count in case.records.items():
        if port not in done.records:
            ports = ", ".join(done.records) or "none"
            yield CaseFailure(count.place, f"no records are counted at '{port}'; there are counts of: {ports}")
        elif (number := done.records[port]) != count.value:
            message = f"{number:,} records left {port}{_not(count.value)}"
            yield CaseFailure(count.place, message, Actual(count.path, number))
    for path, text in case.output.items():
        if (got := done.text(path)) == text.value:
            continue
        if lacks := done.lacks(path):
            yield CaseFailure(text.place, lacks)
        else:
            message = f"{path} is different{_diff(text.value.splitlines(), got.splitlines())}"
            yield CaseFailure(text.place, message, Actual(text.path, got))
    for path, rows in case.rows.items():
        try:
            found = done.rows(path)
        except (ValueError, ImportError) as error:
            yield CaseFailure(rows.place, str(error))
        else:
            yield from _of_rows(done, path, rows, found)


def _of_rows(
    done: AppOutputs, path: str, rows: Expected[list[dict[str, Any]]], found: list[dict[str, Any]]
) -> Iterator[CaseFailure]:
    got = comparable(found, rows.value)
    before, after = sorted_lines(with_types_of(rows.value, found)), sorted_lines(got)
    if before != after and (lacks := done.lacks(path)):
        yield CaseFailure(rows.place, lacks)
    elif before != after:
        yield CaseFailure(rows.place, f"rows of {path} are different{_diff(before, after)}", Actual(rows.path, got))


def _of_schemas(case: AppCase, schemas: Mapping[str, dict[str, str] | str]) -> Iterator[CaseFailure]:
    for port, types in case.schema.items():
        got = schemas[port]
        if isinstance(got, str):
            yield CaseFailure(types.place, got)
        elif got != types.value or list(got) != list(types.value):
            before, after = ([f"{name}: {kind}" for name, kind in each.items()] for each in (types.value, got))
            message = f"columns at {port} are different{_diff(before, after)}"
            yield CaseFailure(types.place, message, Actual(types.path, got))


def _of_rejects(case: AppCase, done: AppOutputs, reasons: Sequence[str]) -> Iterator[CaseFailure]:
    rejected = case.rejected
    if rejected is None:
        return
    if isinstance(rejected.value, list):
        wanted = rejected.value
        if len(wanted) != len(reasons) or not all(part in reason for part, reason in zip(wanted, reasons, strict=True)):
            message = f"other records were rejected{_diff(wanted, reasons)}"
            yield CaseFailure(rejected.place, message, Actual(rejected.path, list(reasons)))
    elif rejected.value != done.rejected:
        message = f"{done.rejected:,} records were rejected{_not(rejected.value)}"
        yield CaseFailure(rejected.place, message, Actual(rejected.path, done.rejected))


def _not(count: int | None) -> str:
    return "" if count is None else f", not {count:,}"


def _diff(expected: Sequence[str], got: Sequence[str]) -> str:
    lines = list(difflib.unified_diff(expected, got, "expected", "published", lineterm="", n=2))
    return "\n    " + ("\n    ".join(lines) or "they differ in the last line's end, or in kinds of line ends")


def _repeated(case: AppCase, files: Mapping[str, bytes], done: AppOutputs) -> Iterator[CaseFailure]:
    """The differences of runs that cut otherwise, or are killed in between; checked where one run holds."""
    checks = ((case.is_cut, _difference_of_cuts), (case.is_killed, _difference_of_deaths))
    for is_stated, difference in checks:
        if is_stated and (message := difference(case, files, done)):
            yield CaseFailure(case.place, message)


MOST_BYTES = 512
"""Size of a file whose block sizes are all tried, at most: each of them is a run."""

_SHOWN = 3


def _difference_of_cuts(case: AppCase, files: Mapping[str, bytes], done: AppOutputs) -> str:
    """The difference in published or counted records where files are cut at the first size that makes one; or "".

    Records may come in another order: blocks are read in parallel.
    """
    largest = max(files, key=lambda path: len(files[path]), default="")
    size = len(files.get(largest, b""))
    if size > MOST_BYTES:
        return f"cut: every tries all block sizes for files of up to {MOST_BYTES} bytes, and {largest} has {size:,}"
    expected = _records(done)
    for block_bytes in range(1, size + 1):
        what = f"with blocks of {block_bytes} bytes"
        folder = AppFolder(case.app, files, set=case.set)
        try:
            with folder:
                plan = folder.plan()
                if not _cut(plan, block_bytes):
                    return "cut: every needs an operator that cuts files into blocks, such as FileSplitterInput"
                found = folder.outputs(folder.run(plan))
        except (DagflowError, ValueError) as error:
            return f"{what} the run failed: {folder.as_in_test(str(error))}"
        if found.records != done.records or found.rejected != done.rejected:
            return f"{what} other records are counted: {_changed(done.records, found.records)}"
        if (records := _records(found)) != expected:
            return f"{what} other records are published: {_changed(expected, records)}"
    return ""


def _cut(plan: LogicalPlan, block_bytes: int) -> bool:
    control = [operator for operator in plan.instances.values() if isinstance(operator, ControlOperator)]
    sources = [operator for operator in control if defines(operator, "cut_at")]
    for source in sources:
        source.cut_at(block_bytes)
    return bool(sources)


def _difference_of_deaths(case: AppCase, files: Mapping[str, bytes], done: AppOutputs) -> str:
    """The first difference in output where a run dies before a change of the disk, and another one continues; or ""."""
    expected = _published(done)
    for at in itertools.count(1):
        what = f"after a crash before change {at} of the disk"
        folder = AppFolder(case.app, files, set=case.set)
        try:
            with folder:
                with crashing_disk(str(folder.path), at) as faults, contextlib.suppress(InjectedCrash):
                    folder.run()
                if not faults.has_struck:
                    break
                found = _published(folder.outputs(folder.run()))
        except (DagflowError, ValueError) as error:
            return f"{what} the next run failed: {folder.as_in_test(str(error))}"
        if found != expected:
            return f"{what}, and another run, other files are published: {_changed(expected, found)}"
    return ""


def _records(done: AppOutputs) -> dict[str, list[str]]:
    """The lines, or rows, below each directory, sorted: names of files depend on the cut."""
    found = {table: sorted_lines(comparable(done.rows(table), ())) for table in done.tables}
    for directory in sorted({os.path.dirname(path) for path in done.named_files()}):
        try:
            rows = done.rows(directory)
        except ValueError:
            found[directory] = sorted(done.text(directory).splitlines())
        else:
            found[directory] = sorted_lines(comparable(rows, ()))
    return found


def _published(done: AppOutputs) -> dict[str, object]:
    """The bytes of each file, or its rows if it may name files; the rows of each table, whose files differ."""
    files = done.named_files()
    with_rows = [*done.tables, *(path for path, data in files.items() if is_parquet(data))]
    return files | {path: sorted_lines(comparable(done.rows(path), ())) for path in with_rows}


def _changed(expected: Mapping[str, object], found: Mapping[str, object]) -> str:
    names = [name for name in sorted({*expected, *found}) if expected.get(name) != found.get(name)]
    more = f", and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    shown = ", ".join(f"{n} ({_short(found.get(n))}, not {_short(expected.get(n))})" for n in names[:_SHOWN])
    return shown + more


def _short(value: object) -> str:
    if isinstance(value, bytes | str | list):
        return f"{len(value):,} {'bytes' if isinstance(value, bytes) else 'records'}"
    return "none" if value is None else str(value)
