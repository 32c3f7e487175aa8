"""The operator of a visitor keeps the laws of all operators."""

from __future__ import annotations

from collections.abc import Sequence

from dagflow.api.operator import Operator
from dagflow.testing.operator_contract import Inputs, OperatorContract
from dagflow.testing.operators import OperatorHarness
from tests.visitors.sample_operator import Sample


class TestSample(OperatorContract):
    """Samples one record in two."""

    def operator(self) -> Operator:
        """A new one, the same each time."""
        return Sample(every=2)

    def windows(self) -> Sequence[Inputs]:
        """An odd number of records first, so that the second window begins with one that does not pass."""
        return [{"input": [b"a", b"b", b"c"]}, {"input": [b"d", b"e"]}]

    def test_one_record_in_two_passes(self) -> None:
        """The count goes on from window to window."""
        harness = OperatorHarness(self.operator())
        for window in self.windows():
            harness.window(window)
        assert harness.emitted == {"output": [b"a", b"c", b"e"]}
