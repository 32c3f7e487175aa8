"""How much of what operators print is shown."""

from __future__ import annotations

import pytest

from dagflow.execution.operator_output import BURST, PER_SECOND, OperatorOutput


def test_an_operator_that_prints_without_end_is_cut_short_and_comes_back(caplog: pytest.LogCaptureFixture) -> None:
    """What is too much is reported once, with where it is; another operator, and later lines, are shown."""
    now = [0.0]
    output = OperatorOutput("in a file", lambda: now[0])
    for _ in range(3 * BURST // 100):
        output.line("operator 'a'", "a", "x" * 100)
    output.line("operator 'b'", "b", "hello")
    assert caplog.messages[-2:] == ["further output of operator 'a' is in a file", "b: hello"]
    assert len(caplog.messages) == BURST // 100 + 2
    now[0] = BURST / PER_SECOND
    output.line("operator 'a'", "a", "later")
    assert caplog.messages[-1] == "a: later"
