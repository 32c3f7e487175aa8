"""What operators raise in the driver: an error that names them, whichever method it is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from dagflow.api.capabilities import SideInput
from dagflow.api.context import RunPreparation
from dagflow.api.transactions import DecidedWindow, Target, TargetState
from dagflow.engine.run import run
from dagflow.errors import OperatorError, StorageError
from dagflow.execution.failures import located
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.engine.sample_app import app_of
from tests.engine.table_app import FaultyTable
from tests.engine.table_app import app as table_app
from tests.execution.sample_operators import CallsFunctions
from tests.faulty import Faults, FaultyTarget


class FailsToPrepare(CallsFunctions):
    """Fails before the run."""

    def prepare(self, run: RunPreparation) -> None:
        """Fail as an author's code does."""
        raise ZeroDivisionError("prepared")


class FailsAtLimitCheck(CallsFunctions):
    """Fails when a window is about to be committed."""

    def check_limits(self, totals: Mapping[str, int]) -> None:
        """Fail as an author's code does."""
        raise KeyError("limit")


class UnopenableTarget(Target):
    """A target that cannot be opened."""

    @property
    def name(self) -> str:
        """What messages call it."""
        return "closed"

    def open(self, writer: str) -> TargetState:
        """Fail as a library does."""
        raise ZeroDivisionError("opened")


class UnopenableTable(FaultyTable):
    """Adds records to it."""

    def transaction_target(self, storage: StorageContext) -> Target:
        """The target."""
        return UnopenableTarget()


class UncommittableTarget(FaultyTarget):
    """A target whose transactions fail as a library does."""

    def open(self, writer: str) -> TargetState:
        """A state that takes nothing."""
        state = super().open(writer)
        changed: Any = state
        changed.commit = self.commit
        return state

    def commit(self, windows: Sequence[DecidedWindow]) -> None:
        """Fail as a library does."""
        raise ZeroDivisionError("committed")


class UncommittableTable(FaultyTable):
    """Adds records to it."""

    def transaction_target(self, storage: StorageContext) -> Target:
        """The target."""
        return UncommittableTarget(super().transaction_target(storage), Faults())


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (UnopenableTable, r"open\(\) raised ZeroDivisionError\(opened\)"),
        (UncommittableTable, r"commit\(\) raised ZeroDivisionError\(committed\)"),
    ],
)
def test_the_error_of_a_target_names_its_operator(tmp_path: Path, kind: type[FaultyTable], problem: str) -> None:
    """What a library raises is not an error of dagflow."""
    with pytest.raises(OperatorError, match=rf"operator 'table': {problem}"):
        run(table_app(tmp_path, [b"a"], table=kind(database=str(tmp_path / "db"))), runtime=InlineRuntime)


class FailsToReadSideInput(CallsFunctions, SideInput):
    """Fails when its side input is read."""

    def side_input_version(self, storage: StorageContext) -> str:
        """A version that never changes."""
        return "1"

    def read_side_input(self, storage: StorageContext) -> bytes:
        """Fail as an author's code does."""
        raise KeyError("read")


class FailsToGiveVersion(FailsToReadSideInput):
    """Fails when it is asked for the version."""

    def side_input_version(self, storage: StorageContext) -> str:
        """Fail as an author's code does."""
        raise KeyError("version")


@pytest.mark.parametrize(
    ("kind", "problem"),
    [
        (FailsToReadSideInput, r"read_side_input\(\) raised KeyError\('read'\)"),
        (FailsToGiveVersion, r"side_input_version\(\) raised KeyError\('version'\)"),
        (FailsToPrepare, r"prepare\(\) raised ZeroDivisionError\(prepared\)"),
        (FailsAtLimitCheck, r"check_limits\(\) raised KeyError\('limit'\)"),
    ],
)
def test_the_error_names_operator_and_method(tmp_path: Path, kind: type[CallsFunctions], problem: str) -> None:
    """And the line of the author's code."""
    with pytest.raises(OperatorError, match=f"operator 'middle'.*{problem}") as caught:
        run(app_of(tmp_path, [b"a"], middle=kind()), runtime=InlineRuntime)
    assert caught.value.line.startswith("tests/execution/test_failures.py:")


class FailsInCompiledCode(CallsFunctions):
    """Fails in compiled code of a library."""

    def prepare(self, run: RunPreparation) -> None:
        """Ask Arrow for numbers where there are none."""
        pa.array(["n/a"]).cast(pa.float64())


def test_compiled_code_of_a_library_is_not_the_authors(tmp_path: Path) -> None:
    """The files that Cython names are nowhere to be found."""
    with pytest.raises(OperatorError, match="ArrowInvalid") as caught:
        run(app_of(tmp_path, [b"a"], middle=FailsInCompiledCode()), runtime=InlineRuntime)
    assert caught.value.line.startswith("tests/execution/test_failures.py:")
    assert caught.value.line.endswith('pa.array(["n/a"]).cast(pa.float64())')


def test_errors_of_dagflow_stay_as_they_are() -> None:
    """Errors of dagflow already say what is wrong."""
    with pytest.raises(StorageError, match="gone"), located("op", print):
        raise StorageError("gone", url="x")
    with pytest.raises(KeyboardInterrupt, match="stop"), located("op", print):
        raise KeyboardInterrupt("stop")
