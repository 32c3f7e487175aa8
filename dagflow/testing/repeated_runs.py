"""Runs an app again, cut at every size, or killed at every change of the disk: the output must be the same."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping

from dagflow.api.control import ControlOperator
from dagflow.api.operator import defines
from dagflow.errors import DagflowError
from dagflow.plan.logical import LogicalPlan
from dagflow.spec.case_reader import AppCase
from dagflow.testing.apps import AppFolder, AppOutputs
from dagflow.testing.faults import InjectedCrash, crashing_disk
from dagflow.testing.published_rows import comparable, is_parquet, sorted_lines

MOST_BYTES = 512
"""Size of a file whose block sizes are all tried, at most: each of them is a run."""

_SHOWN = 3


def differences_of_cuts(case: AppCase, files: Mapping[str, bytes], done: AppOutputs) -> Iterator[str]:
    """The differences in published or counted records where files are cut at a certain size; the first such size.

    Records may come in another order: blocks are read in parallel.
    """
    largest = max(files, key=lambda path: len(files[path]), default="")
    size = len(files.get(largest, b""))
    if size > MOST_BYTES:
        yield f"cut: every tries all block sizes for files of up to {MOST_BYTES} bytes, and {largest} has {size:,}"
        return
    expected = _records(done)
    for block_bytes in range(1, size + 1):
        what = f"with blocks of {block_bytes} bytes"
        folder = AppFolder(case.app, files, set=case.set)
        try:
            with folder:
                plan = folder.plan()
                if not _cut(plan, block_bytes):
                    yield "cut: every needs an operator that cuts files into blocks, such as FileSplitterInput"
                    return
                found = folder.outputs(folder.run(plan))
        except (DagflowError, ValueError) as error:
            yield f"{what} the run failed: {folder.as_in_test(str(error))}"
            return
        if found.records != done.records or found.rejected != done.rejected:
            yield f"{what} other records are counted: {_changed(done.records, found.records)}"
            return
        if (records := _records(found)) != expected:
            yield f"{what} other records are published: {_changed(expected, records)}"
            return


def _cut(plan: LogicalPlan, block_bytes: int) -> bool:
    control = [operator for operator in plan.instances.values() if isinstance(operator, ControlOperator)]
    sources = [operator for operator in control if defines(operator, "cut_at")]
    for source in sources:
        source.cut_at(block_bytes)
    return bool(sources)


def differences_of_deaths(case: AppCase, files: Mapping[str, bytes], done: AppOutputs) -> Iterator[str]:
    """The differences in output where a run dies before a change of the disk, and another one continues; the first."""
    expected = _published(done)
    for at in itertools.count(1):
        what = f"after a crash before change {at} of the disk"
        folder = AppFolder(case.app, files, set=case.set)
        try:
            with folder:
                with crashing_disk(str(folder.path), at) as faults, contextlib.suppress(InjectedCrash):
                    folder.run()
                if not faults.has_struck:
                    return
                found = _published(folder.outputs(folder.run()))
        except (DagflowError, ValueError) as error:
            yield f"{what} the next run failed: {folder.as_in_test(str(error))}"
            return
        if found != expected:
            yield f"{what}, and another run, other files are published: {_changed(expected, found)}"
            return


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
