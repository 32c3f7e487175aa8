"""Runs a whole app on a test's files, in this process and in a directory of its own, and reads its output back."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Protocol, Self

import pyarrow as pa

from dagflow.api.columns.column_values import readable_rows
from dagflow.api.transactions import targets_of
from dagflow.engine.limited_run import without_servers
from dagflow.engine.preparation import LocationCollector
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.execution.task_outputs import OutputBounds
from dagflow.frozen import frozen
from dagflow.late import parquet as pq
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.report.published_rows import decompressed, is_parquet, partition_values
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.spec.app_reader import Overrides
from dagflow.spec.class_lookup import search_path_of
from dagflow.storage.location import redacted

CHECKPOINT = "journal-of-the-test"

_IN_MEMORY = "/dev/shm"
_SPARE_BYTES = 32 << 20
_COPIES = 8
"""How often an app may write its input, about."""


class HasPlan(Protocol):
    """Something with a checked DAG, as `dagflow.App` has."""

    def logical(self) -> LogicalPlan:
        """The DAG, with fresh operators."""


@frozen
class AppOutputs:
    """The published output of an app, and its counts.

    Files named in records, as in rejects, have the names that the test gives them.

    Attributes:
        files: The content of each published file, by its path as the app sees it.
        tables: The rows of each table of a transactional target, by the operator that writes to it.
        output_locations: Where each operator publishes.
    """

    files: Mapping[str, bytes]
    snapshot: RunSnapshot
    tables: Mapping[str, Sequence[Mapping[str, Any]]] = field(default_factory=dict)
    output_locations: Mapping[str, Sequence[str]] = field(default_factory=dict)
    folder: str = ""

    @property
    def records(self) -> Mapping[str, int]:
        """How many records each port emitted, by "operator.port"."""
        return self.snapshot.records

    @property
    def rejected(self) -> int:
        """How many records were refused."""
        return self.snapshot.rejected

    def lines(self, directory: str = "") -> list[bytes]:
        """The lines of all files below a directory, in the order of the files' names.

        Args:
            directory: A path that the app publishes into; "" for all files.
        """
        return [line for data in self._below(directory) for line in data.splitlines()]

    def text(self, path: str) -> str:
        """The text of a file, or of all files below a directory in the order of their names."""
        return b"".join(self._below(path)).decode(errors="backslashreplace")

    def rows(self, path: str) -> list[dict[str, Any]]:
        """The rows of a table, of a file, or of all files below a directory, as mappings from columns to values.

        Args:
            path: A file or directory of Parquet, lines of JSON or CSV; the location of a Delta table; or the operator
                that writes to a table of any kind.

        Raises:
            ValueError: A file at the path has no columns.
        """
        place = os.path.normpath(path)
        writers = [name for name in self.tables if name == path or place in self.output_locations.get(name, ())]
        files = {name: data for name, data in self.files.items() if name == place or name.startswith(f"{place}/")}
        return [
            {name: value.replace(self.folder, "") if isinstance(value, str) else value for name, value in row.items()}
            for row in (self.tables[writers[0]] if writers else rows_of(files, place))
        ]

    def named_files(self) -> dict[str, bytes]:
        """The files that are visible by their names; those of a transactional target have other names in each run."""
        others = (paths for name, paths in self.output_locations.items() if name not in self.tables)
        inside = tuple(f"{path}/" for paths in others for path in paths)
        return {path: data for path, data in self.files.items() if path.startswith(inside)}

    def lacks(self, path: str) -> str:
        """The message for a path without output, which names paths with output; "" where the path has output."""
        place = os.path.normpath(path)
        if path in self.tables or any(each == place or each.startswith(f"{place}/") for each in self.files):
            return ""
        directories = sorted({os.path.dirname(each) for each in self.files})
        return f"nothing was published in {path}; there is output in: {', '.join(directories) or 'no place'}"

    def _below(self, place: str) -> list[bytes]:
        place = os.path.normpath(place) if place else ""
        below = f"{place}/" if place else ""
        found = sorted(path for path in self.files if path == place or path.startswith(below))
        return [decompressed(path, self.files[path]) for path in found]


def run_app(
    app: str | os.PathLike[str] | HasPlan, files: Mapping[str, bytes | str], *, set: Overrides = ()
) -> AppOutputs:
    """Run an app until all input is processed, without Spark, without processes, and without its checkpoint.

    The app runs in an empty directory, which contains the files and is removed afterwards, so that its relative paths
    lead there: an app that reads `data/logs` is given a file `data/logs/a.log`.

    Args:
        app: The app's file, or an App.
        files: The content of each input file, by its path as the app sees it; text is UTF-8.
        set: Properties to set on top of an app file, for example of paths that are absolute.

    Raises:
        ValueError: The app publishes elsewhere, or a file would be outside of the directory, or cannot be written.
        DagflowError: The app has mistakes, or the run failed, for example because an operator that does not claim its
            location publishes elsewhere.
    """
    with AppFolder(app, files, set=set) as folder:
        return folder.outputs(folder.run())


class AppFolder:
    """An empty directory with the files of a test, in which an app runs, as run_app says; a context that removes it."""

    def __init__(
        self, app: str | os.PathLike[str] | HasPlan, files: Mapping[str, bytes | str], *, set: Overrides = ()
    ) -> None:
        # The directory of the test becomes the working directory, and the app's path is relative to the present one.
        self._app = Path(app).resolve() if isinstance(app, str | os.PathLike) else app
        self._set = set
        self._search_path = search_path_of(str(self._app))
        self._files = files
        self.path = Path()
        self._plan: LogicalPlan | None = None
        self._output_locations: dict[str, list[str]] = {}
        self._stack = contextlib.ExitStack()

    def __enter__(self) -> Self:
        """Make the directory, which becomes the working directory.

        Raises:
            ValueError: A file would be outside of the directory, or cannot be written.
        """
        with contextlib.ExitStack() as stack:
            size_bytes = sum(map(len, self._files.values()))
            folder = tempfile.TemporaryDirectory(prefix="dagflow-test-", dir=_directory_in_memory(size_bytes))
            name = stack.enter_context(folder)
            self.path = Path(name).resolve()
            stack.enter_context(contextlib.chdir(name))
            for path, content in self._files.items():
                _write(self.path, path, content)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stack.close()

    def as_in_test(self, text: str) -> str:
        """A text in which files have the names that the test gives them."""
        return text.replace(f"{self.path}/", "").replace(str(self.path), "the directory of the test")

    def plan(self) -> LogicalPlan:
        """The app's plan, with fresh operators; relative paths, and its checkpoint, are in the directory.

        Raises:
            ValueError: The app publishes elsewhere.
            DagflowError: The app has mistakes.
        """
        plan = (
            load_app(self._app, self._set, search_path=self._search_path)
            if isinstance(self._app, Path)
            else self._app.logical()
        )
        plan = without_servers(plan, str(self.path))
        self._output_locations = _output_locations_inside(plan, self._bounds())
        attributes = replace(plan.attributes.without_signals(), checkpoint=str(self.path / CHECKPOINT))
        return replace(plan, attributes=attributes)

    def run(self, plan: LogicalPlan | None = None) -> RunSnapshot:
        """Run the app, or continue a run that was killed here; without the result of plan(), a new plan is made."""
        self._plan = plan or self.plan()
        return run(self._plan, RunOptions(output_bounds=self._bounds()), runtime=InlineRuntime)

    def _bounds(self) -> OutputBounds:
        return OutputBounds(str(self.path), "a test", hint="give the operator a relative path with set")

    def outputs(self, snapshot: RunSnapshot) -> AppOutputs:
        """The output of a run in the directory, and in tables."""
        folder = f"{self.path}/"
        published = _published(self.path, {*map(os.path.normpath, self._files)})
        files = {path: data if is_parquet(data) else data.replace(folder.encode(), b"") for path, data in published}
        return AppOutputs(files, snapshot, self._tables(), self._output_locations, folder)

    def _tables(self) -> dict[str, list[dict[str, Any]]]:
        if self._plan is None:
            return {}
        targets = targets_of(self._plan.instances, self._plan.attributes.storage_context())
        found = ((name, target.rows()) for name, target in targets.items())
        return {name: [] if rows is None else readable_rows(pa.table(rows)) for name, rows in found}


def _directory_in_memory(size_bytes: int) -> str | None:
    """A directory in memory, so that nothing waits for a disk; None where none has space for an app and its input."""
    if "TMPDIR" in os.environ or not os.access(_IN_MEMORY, os.W_OK | os.X_OK):
        return None
    return _IN_MEMORY if shutil.disk_usage(_IN_MEMORY).free > _SPARE_BYTES + _COPIES * size_bytes else None


def _output_locations_inside(plan: LogicalPlan, bounds: OutputBounds) -> dict[str, list[str]]:
    """The locations that each operator publishes into, relative to the directory of the test."""
    found: dict[str, list[str]] = {}
    for name, node in plan.operators.items():
        collector = LocationCollector(plan.attributes.storage_context())
        collector.prepare({name: node.operator})
        for url in collector.outputs:
            if not bounds.include(url):
                raise ValueError(f"operator '{name}' publishes into {redacted(url)}: give it a relative path with set=")
            found.setdefault(name, []).append(os.path.relpath(url, bounds.directory))
    return found


def _write(folder: Path, path: str, content: bytes | str) -> None:
    target = Path(os.path.normpath(folder / path))
    if folder not in target.parents:
        raise ValueError(f"the file {path} would lie outside of the directory of the test: give a relative path")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("xb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
    except (FileExistsError, NotADirectoryError) as error:
        raise ValueError(f"the file {path} would lie where another file of the test lies") from error
    except (OSError, ValueError) as error:
        raise ValueError(f"the file {path} cannot be written: {getattr(error, 'strerror', '') or error}") from error


def _published(folder: Path, given: set[str]) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not is_hidden and name not in given and not name.startswith(f"{CHECKPOINT}/"):
            yield name, path.read_bytes()


_CSV = ".csv"


def rows_of(files: Mapping[str, bytes], place: str) -> list[dict[str, Any]]:
    """The rows of files in a place: the file, or the directory that contains all of them."""
    return [row for path in sorted(files) for row in _rows_of_file(path, files[path], place)]


def _rows_of_file(path: str, data: bytes, place: str) -> Iterator[dict[str, Any]]:
    data = decompressed(path, data)
    if is_parquet(data):
        values = partition_values(path.removeprefix(place))
        yield from ({**row, **values} for row in readable_rows(pq.ParquetFile(pa.BufferReader(data)).read()))
        return
    text = data.decode(errors="backslashreplace")
    if _CSV in Path(path).suffixes[-2:]:
        yield from csv.DictReader(io.StringIO(text))
        return
    for line in text.split("\n"):
        if not line:
            continue
        try:
            row = json.loads(line)
        except ValueError:
            row = None
        if not isinstance(row, dict):
            raise ValueError(f"{path} has no columns: it is neither Parquet, CSV nor lines of JSON; compare its text")
        yield row


METADATA = "_dagflow_"
"""Prefix of columns that say where a record is from; such a column is compared only where a row states it."""


def stated(value: Any) -> Any:
    """A value in the form in which YAML can state it: decimals, times and bytes are text."""
    if isinstance(value, Mapping):
        return {str(name): stated(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [stated(each) for each in value]
    if isinstance(value, bytes):
        return value.decode(errors="backslashreplace")
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    return str(value) if isinstance(value, Decimal | timedelta) else value


def comparable(rows: Iterable[Mapping[str, Any]], like: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Published rows in the form of those that a case states: without metadata columns that it does not name."""
    named = {name for row in like for name in row}
    return [
        {name: stated(value) for name, value in row.items() if name in named or not name.startswith(METADATA)}
        for row in rows
    ]


def sorted_lines(rows: Iterable[Mapping[str, Any]]) -> list[str]:
    """A line for each row, in an order that is the same for the same rows; a null equals a missing value."""
    return sorted(
        json.dumps(
            {name: value for name, value in row.items() if value is not None}, ensure_ascii=False, sort_keys=True
        )
        for row in rows
    )


def with_types_of(expected: Sequence[Mapping[str, Any]], rows: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Stated rows whose numbers are written like the published values: 5 is 5.00 in a column of decimals."""
    kinds: dict[str, set[type]] = {}
    for row in rows:
        for name, value in row.items():
            kinds.setdefault(name, set()).add(type(value))
    scales = {
        name: max(-int(row[name].as_tuple().exponent) for row in rows if isinstance(row.get(name), Decimal))
        for name, types in kinds.items()
        if Decimal in types
    }
    return [
        {name: _like(value, kinds.get(name, set()), scales.get(name)) for name, value in r.items()} for r in expected
    ]


def _like(value: Any, kinds: set[type], scale: int | None) -> Any:
    if type(value) in (int, float) and scale is not None:
        number = Decimal(str(value))
        text = f"{number:.{scale}f}"
        return text if number == Decimal(text) else str(value)
    return float(value) if type(value) is int and float in kinds else value
