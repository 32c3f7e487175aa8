"""The runtime of one thread of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from pathlib import Path

import pytest

from dagflow.errors import TransientStorageError
from dagflow.execution.messages import Program
from dagflow.runtime.base import MAX_ATTEMPTS
from dagflow.runtime.local import SingleProcessRuntime
from tests.execution.sample_operators import SampleWords, TextSample
from tests.runtime.bad_operators import INTERRUPTING
from tests.runtime.runtime_contract import (
    RuntimeContract,
    Start,
    exchanging_plan,
    operators_of,
    require_failure_is_reported,
    window,
)

tries: list[TextSample] = []


class FailsAtFirstRead(SampleWords):
    """Meets a store that fails the first time."""

    @SampleWords.samples.each
    def read(self, sample: TextSample) -> Iterator[None]:
        """Fail once."""
        tries.append(sample)
        if len(tries) == 1:
            raise TransientStorageError("try again", url="store")
        yield from super().read(sample)


class TestSingleProcessRuntime(RuntimeContract):
    """One thread of this process keeps the contract."""

    @pytest.fixture
    def start(self) -> Callable[[Program], SingleProcessRuntime]:
        """Starts the runtime."""
        return SingleProcessRuntime

    @pytest.mark.parametrize("how", INTERRUPTING)
    def test_an_interruption_that_is_an_operators_own_is_its_failure(
        self, start: Start, tmp_path: Path, how: str
    ) -> None:
        """A signal interrupts the driver's thread, and not the one of the tasks."""
        require_failure_is_reported(start, tmp_path, how, INTERRUPTING[how][1])


def test_a_task_whose_store_fails_once_is_run_again(tmp_path: Path) -> None:
    """As on Spark, a store that may do better next time does not end the run."""
    tries.clear()
    runtime = SingleProcessRuntime(
        Program.of("app", exchanging_plan(), {**operators_of(tmp_path), "lines": FailsAtFirstRead()})
    )
    results = runtime.submit(window([b"a"])).result()
    assert [result.error for result in results] == [None] * 6
    assert 1 < len(tries) <= MAX_ATTEMPTS
    runtime.close()


def test_a_cancelled_runtime_drops_what_waits(tmp_path: Path) -> None:
    """A window that is submitted after the end was asked for never runs."""
    runtime = SingleProcessRuntime(Program.of("app", exchanging_plan(), operators_of(tmp_path)))
    runtime.cancel()
    with pytest.raises(CancelledError, match="the run has ended"):
        runtime.submit(window([b"a"])).result()
    runtime.close()
