"""An operator that raises."""

from __future__ import annotations

from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort, OutputPort


class FailsAtFirstRecord(Operator):
    """Raises at the first record."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def take(self, record: bytes) -> None:
        """Raise."""
        raise KeyError(record)
