"""What the progress display knows about an app: its operators, and how fast its figures grow."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from dagflow.cli.options import Redact
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.physical import PhysicalPlan

RATE_WINDOW_S = 5.0  # long enough that a single window does not make the figure jump, short enough to follow


@dataclass(frozen=True, slots=True)
class AppView:
    """An app as its progress is shown.

    Attributes:
        name: The app's name.
        operators: Every operator's name, upstream first.
        head_by_operator: For each operator in a stage, the operator that decides the stage's partitions.
        sources: Ports such as "reader.messages" that emit records and whose operator takes none in: what
            they emitted is what was read.
        redact: Makes a message fit to be printed.
    """

    name: str
    operators: tuple[str, ...]
    head_by_operator: Mapping[str, str]
    sources: tuple[str, ...]
    redact: Redact = str

    @classmethod
    def of(cls, logical: LogicalPlan, physical: PhysicalPlan, redact: Redact = str) -> AppView:
        """The view of an app that was loaded and placed."""
        heads = {name: stage.head for stage in physical.stages for name in stage.operators}
        sources = [
            f"{name}.{port}"
            for name, node in logical.operators.items()
            if not any(taken.carries_records for taken in node.operator.input_ports.values())
            for port, given in node.operator.output_ports.items()
            if given.carries_records
        ]
        return cls(logical.name, (*physical.control, *heads), heads, tuple(sources), redact)

    def records_read(self, records: Mapping[str, int]) -> int:
        """How many records the app's readers have emitted.

        Args:
            records: Counts by port.
        """
        return sum(records.get(port, 0) for port in self.sources)


class Rate:
    """How fast a figure grows, over the last few seconds."""

    def __init__(self) -> None:
        self._points: deque[tuple[float, float]] = deque()

    def update(self, seconds: float, value: float) -> None:
        """Take in the figure as it stands.

        Args:
            seconds: Any clock that does not go back.
            value: The figure.
        """
        self._points.append((seconds, value))
        while len(self._points) > 2 and self._points[1][0] <= seconds - RATE_WINDOW_S:
            self._points.popleft()

    @property
    def per_second(self) -> float:
        """Growth per second; 0 before two moments are known."""
        if len(self._points) < 2:
            return 0.0
        (start, first), (end, last) = self._points[0], self._points[-1]
        return max(0.0, last - first) / (end - start) if end > start else 0.0
