"""Estimates a run before it is run."""

from __future__ import annotations

from dataclasses import dataclass

from dagflow.api.control import Estimator, InputEstimate
from dagflow.engine.window_sizing import first_windows
from dagflow.plan.logical import LogicalPlan

WITHIN_S = 2.0
"""How long a person who asked for a plan waits for the estimate."""


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """How much a run will process that is the first at its checkpoint.

    Attributes:
        files: Number of files.
        blocks: Number of blocks.
        bytes: Bytes in them.
        windows: Windows, before the speed of the readers is known; at least.
        uncut: Files larger than a block that one task must read as a whole.
        is_partial: Whether there is more, which was not counted for lack of time.
    """

    files: int
    blocks: int
    bytes: int
    windows: int
    uncut: int
    is_partial: bool

    def __str__(self) -> str:
        """Such as 'all input, taken before or not: 3 files, 12 blocks, 1 048 576 bytes, 2 windows'."""
        counts = {"file": self.files, "block": self.blocks, "byte": self.bytes, "window": self.windows}
        figures = [
            f"{count:,}".replace(",", " ") + f" {unit}{'' if count == 1 else 's'}" for unit, count in counts.items()
        ]
        return f"all input, taken before or not: {', '.join(figures)}"


def estimate(app: LogicalPlan, *, parallelism: int = 1) -> RunEstimate | None:
    """Ask the input operators how much there is.

    Args:
        app: The app.
        parallelism: Tasks that will run at the same time.

    Returns:
        The sum, or None where no input operator can tell.

    Raises:
        DagflowError: The input cannot be looked at.
    """
    found = InputEstimate()
    storage = app.attributes.storage_context()
    windows = 0
    inputs = [node.operator for node in app.operators.values() if isinstance(node.operator, Estimator)]
    for operator in inputs:
        part = operator.estimate(WITHIN_S / len(inputs), storage)
        found += part
        limits = operator.window_limits()
        windows = max(windows, first_windows(part.blocks, part.files, part.bytes, limits, parallelism))
    if not inputs:
        return None
    return RunEstimate(found.files, found.blocks, found.bytes, windows, found.uncut, found.is_partial)
