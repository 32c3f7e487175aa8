"""Runs a whole app on files that a test gives, in this process and in a directory of its own."""

from __future__ import annotations

import contextlib
import os
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from dagflow.engine.preparation import Places
from dagflow.engine.run import RunOptions, run
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.inline import InlineRuntime
from dagflow.spec.app_reader import Overrides
from dagflow.spec.class_lookup import search_path_of
from dagflow.storage.location import redacted

CHECKPOINT = "journal-of-the-test"


class HasPlan(Protocol):
    """What gives a checked DAG, as `dagflow.App` does."""

    def logical(self) -> LogicalPlan:
        """The DAG, with fresh operators."""


@dataclass(frozen=True, slots=True)
class AppOutputs:
    """What an app has published, and what it counted.

    Attributes:
        files: The content of each published file, by its path as the app sees it.
        snapshot: The figures of the run.
    """

    files: Mapping[str, bytes]
    snapshot: RunSnapshot

    @property
    def records(self) -> Mapping[str, int]:
        """How many records left each port, by "operator.port"."""
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

    def _below(self, place: str) -> list[bytes]:
        place = os.path.normpath(place) if place else ""
        below = f"{place}/" if place else ""
        return [data for path, data in sorted(self.files.items()) if path == place or path.startswith(below)]


def run_app(
    app: str | os.PathLike[str] | HasPlan, files: Mapping[str, bytes | str], *, set: Overrides = ()
) -> AppOutputs:
    """Run an app until all input is processed, without Spark, without processes, and without its checkpoint.

    The app runs in an empty directory, which holds the files and is removed afterwards, so that its relative paths lead
    there: an app that reads `data/logs` is given a file `data/logs/a.log`.

    Args:
        app: The app's file, or an App.
        files: The content of each input file, by its path as the app sees it; text is UTF-8.
        set: Properties to set on top of an app file, for example of paths that are absolute.

    Raises:
        ValueError: The app publishes elsewhere, or a file would lie there.
        DagflowError: The app has mistakes, or the run failed.
    """
    loader = _Loader(app, set)
    with tempfile.TemporaryDirectory(prefix="dagflow-test-") as name, contextlib.chdir(name):
        folder = Path(name).resolve()
        plan = loader.logical()
        _require_inside(plan, folder)
        for path, content in files.items():
            _write(folder, path, content)
        here = replace(plan, attributes=replace(plan.attributes, checkpoint=str(folder / CHECKPOINT)))
        snapshot = run(here, RunOptions(), runtime=InlineRuntime)
        return AppOutputs(dict(_published(folder, {*map(os.path.normpath, files)})), snapshot)


class _Loader:
    """Makes the plan of an app in another directory than the one that the app was named in.

    Args:
        app: The app's file, or an App.
        set: Properties to set on top of an app file.
    """

    def __init__(self, app: str | os.PathLike[str] | HasPlan, set: Overrides) -> None:
        self._app = Path(app).resolve() if isinstance(app, str | os.PathLike) else app
        self._set = set
        self._search_path = search_path_of(str(self._app))

    def logical(self) -> LogicalPlan:
        """The plan, whose relative paths lead into the working directory."""
        if isinstance(self._app, Path):
            return load_app(self._app, self._set, search_path=self._search_path)
        return self._app.logical()


def _require_inside(plan: LogicalPlan, folder: Path) -> None:
    """Refuse an app that would publish outside of the directory of the test.

    Raises:
        ValueError: It would.
    """
    for name, node in plan.operators.items():
        places = Places(plan.attributes.storage_context())
        node.operator.prepare(places)
        for url in places.outputs:
            if not f"{url}/".startswith(f"{folder}/"):
                raise ValueError(f"operator '{name}' publishes into {redacted(url)}: give it a relative path with set=")


def _write(folder: Path, path: str, content: bytes | str) -> None:
    target = Path(os.path.normpath(folder / path))
    if folder not in target.parents:
        raise ValueError(f"the file {path} would lie outside of the directory of the test: give a relative path")
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content.encode() if isinstance(content, str) else content)


def _published(folder: Path, given: set[str]) -> Iterator[tuple[str, bytes]]:
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not is_hidden and name not in given and not name.startswith(f"{CHECKPOINT}/"):
            yield name, path.read_bytes()
