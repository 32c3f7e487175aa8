"""The runtime of one process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.api.records import RecordBatch
from dagflow.execution.messages import Program
from dagflow.execution.stalls import StallLimits
from dagflow.runtime.local import InlineRuntime
from tests.execution.sample_operators import SampleWords, TextSample
from tests.runtime.runtime_contract import RuntimeContract, Start, exchanging_plan, operators_of, window


class EmitsForever(SampleWords):
    """Emits for ever."""

    @SampleWords.samples.each
    def read(self, sample: TextSample) -> Iterator[None]:
        """Emit, and never end."""
        while True:
            self.records.emit(RecordBatch.from_records([b"again"] * 50_000))
            yield


class TestInlineRuntime(RuntimeContract):
    """The inline runtime keeps the contract."""

    @pytest.fixture
    def start(self) -> Start:
        """Starts the runtime."""
        return InlineRuntime


def test_an_operator_that_emits_for_ever_is_reported_and_ended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Operator, file and the number of records are reported, and the time limit ends it."""
    operators = {**operators_of(tmp_path), "lines": EmitsForever()}
    program = Program.of("app", exchanging_plan(), operators, stall_limits=StallLimits(warning_s=0.1, timeout_s=0.3))
    results = InlineRuntime(program).submit(window([b"a"])).result()
    (error,) = {str(result.error) for result in results if result.error is not None}
    assert "no progress for as long as task_timeout_millis allows" in error
    reported, ended = [text for text in caplog.messages if "it takes no input, and has emitted" in text]
    assert reported.startswith("window 7, operator 'lines' partition 0: no progress for 0 s in read() of s0 [0, 1)")
    assert "the task is ended" in ended
