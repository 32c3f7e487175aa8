"""A live number of one's own: the operator that worked longest so far."""

from __future__ import annotations

from dagflow.report.snapshot import RunSnapshot


class SlowestOperator:
    """Receives the progress of a run, and keeps the name and the seconds of its slowest operator."""

    def __init__(self) -> None:
        self.name = ""
        self.busy_s = 0.0

    def progress(self, snapshot: RunSnapshot) -> None:
        """Read the snapshot; called a few times a second."""
        for operator in snapshot.operators:
            if operator.busy_s > self.busy_s:
                self.name, self.busy_s = operator.name, operator.busy_s

    def notice(self, text: str) -> None:
        """Ignore messages."""
