"""How much input a run has: estimated before it starts, and counted beside it until all input is listed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable

from dagflow.api.control import InputEstimate, InputOperator
from dagflow.api.operator import Operator, defines
from dagflow.engine.window_sizing import first_windows
from dagflow.errors import DagflowError
from dagflow.frozen import frozen
from dagflow.plan.logical import LogicalPlan
from dagflow.report.snapshot import WholeInput
from dagflow.storage.context import StorageContext

WITHIN_S = 2.0
"""How long a user who asked for a plan waits for the estimate."""

COUNT_AFTER_S = 5.0
"""Seconds of a run in which nothing is counted: a shorter run needs no forecast of its end, and a count would take time
from its driver."""

COUNT_S = 0.5
"""Seconds that each input operator may count."""


@frozen
class RunEstimate:
    """How much the first run at a checkpoint will process."""

    input: InputEstimate
    windows: int

    def __str__(self) -> str:
        """Such as 'all input, taken before or not: 3 files, 12 blocks, 1 048 576 bytes, 2 windows'."""
        found = self.input
        counts = {"file": found.files, "block": found.blocks, "byte": found.bytes, "window": self.windows}
        figures = [
            f"{count:,}".replace(",", " ") + f" {unit}{'' if count == 1 else 's'}" for unit, count in counts.items()
        ]
        return f"all input, taken before or not: {', '.join(figures)}"


def estimate(app: LogicalPlan, *, parallelism: int = 1, within_s: float = WITHIN_S) -> RunEstimate | None:
    """Ask the input operators how much input there is.

    Returns:
        The sum, or None where no input operator can estimate its input.
    """
    found = InputEstimate()
    storage = app.attributes.storage_context()
    windows = 0
    inputs = _estimating(app.instances.values())
    for operator in inputs:
        part = operator.estimate(within_s / len(inputs), storage)
        found += part
        windows = max(windows, first_windows(part, operator.window_limits(), parallelism))
    return RunEstimate(found, windows) if inputs else None


def _estimating(operators: Iterable[Operator]) -> list[InputOperator]:
    return [operator for operator in operators if isinstance(operator, InputOperator) and defines(operator, "estimate")]


class InputCount:
    """Counts the whole input of an app on a thread of its own, for display only.

    Args:
        is_first: Whether nothing was read before; otherwise the rest of the input cannot be counted beside the run.
    """

    def __init__(
        self, operators: Iterable[Operator], storage: StorageContext, *, is_first: bool, after_s: float = COUNT_AFTER_S
    ) -> None:
        self._inputs = _estimating(operators) if is_first else []
        self._storage = storage
        self._begin_s = time.monotonic() + after_s
        self._thread: threading.Thread | None = None
        self._bytes: int | None = None

    def whole(self, listed_bytes: int, *, is_complete: bool) -> WholeInput | None:
        """How much the run will read, as far as it is known; starts to count where it is not and after_s have passed.

        Args:
            listed_bytes: Bytes that the run has listed so far, including those that it has read.
            is_complete: Whether the run has listed everything.
        """
        if is_complete:
            return WholeInput(listed_bytes)
        if self._inputs and self._thread is None and time.monotonic() >= self._begin_s:
            self._thread = threading.Thread(target=self._count, name="input-count", daemon=True)
            self._thread.start()
        if self._bytes is None or self._bytes < listed_bytes:
            return None
        return WholeInput(self._bytes, is_exact=False)

    def wait(self) -> None:
        if self._thread is not None:
            self._thread.join()

    def _count(self) -> None:
        try:
            found = sum((each.estimate(COUNT_S, self._storage) for each in self._inputs), InputEstimate())
        except DagflowError:
            return  # the run meets the same error, and reports it
        if not found.is_partial:
            self._bytes = found.bytes
