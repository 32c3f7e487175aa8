"""The laws that every runtime keeps, as tests to inherit."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.errors import OperatorError
from dagflow.execution.messages import Program
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.base import Runtime
from dagflow.runtime.local import InlineRuntime

OUTPUT = "out"


class BackendContract(ABC):
    """Tests of one runtime, by whole apps; a subclass, whose name begins with Test, starts it and provides the apps.

    An app is YAML in which FOLDER stands for a directory: it reads FOLDER/in, publishes below FOLDER/out and has its
    checkpoint in FOLDER/journal. It fixes its partitions, which otherwise depend on the size of the cluster.
    """

    @abstractmethod
    def start(self, program: Program) -> Runtime:
        """Start the runtime, or one more user of it; it is closed after each run."""

    @abstractmethod
    def apps(self) -> Mapping[str, str]:
        """The YAML of each app, by a name for it."""

    @abstractmethod
    def failing_app(self) -> str:
        """The YAML of an app whose operator 'broken' raises in a task."""

    @abstractmethod
    def write_input(self, folder: Path) -> None:
        """Write what the apps read, the same each time, into a directory that exists."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self._root = tmp_path

    def test_bytes_and_counts_are_those_of_the_in_process_runtime(self) -> None:
        """Every app publishes the same files with the same names, and counts the same, wherever its tasks run."""
        for name, app in self.apps().items():
            here, there = self._root / f"{name}-here", self._root / f"{name}-there"
            own, other = self._run(app, here, in_process=True), self._run(app, there)
            assert _files(there) == _files(here) != {}, name
            assert (other.records, other.files, other.blocks) == (own.records, own.files, own.blocks), name

    def test_a_second_run_finds_nothing_to_do(self) -> None:
        """A committed window is not run again, and its output stays unchanged."""
        for name, app in self.apps().items():
            folder = self._root / name
            self._run(app, folder)
            before = _files(folder)
            assert self._run(app, folder).windows == 0, name
            assert _files(folder) == before, name

    def test_a_failure_names_its_operator_and_publishes_nothing(self) -> None:
        """The error of a task arrives with all its details."""
        folder = self._root / "failing"
        with pytest.raises(OperatorError, match="operator 'broken'") as caught:
            self._run(self.failing_app(), folder)
        assert (caught.value.operator, caught.value.window_id) == ("broken", 1)
        assert _files(folder) == {}

    def _run(self, app: str, folder: Path, *, in_process: bool = False) -> RunSnapshot:
        if not folder.exists():
            (folder / "in").mkdir(parents=True)
            self.write_input(folder / "in")
        file = folder / "app.yaml"
        file.write_text(app.replace("FOLDER", str(folder)))
        return run(load_app(file), runtime=InlineRuntime if in_process else self.start)


def _files(folder: Path) -> dict[str, bytes]:
    """The published files below a directory, by relative path."""
    out = folder / OUTPUT
    return {str(path.relative_to(out)): path.read_bytes() for path in sorted(out.rglob("*")) if path.is_file()}
