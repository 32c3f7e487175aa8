"""Estimates a run before it starts."""

from __future__ import annotations

from dataclasses import dataclass

from dagflow.api.control import Estimator, InputEstimate
from dagflow.engine.window_sizing import first_windows
from dagflow.plan.logical import LogicalPlan

WITHIN_S = 2.0
"""How long a user who asked for a plan waits for the estimate."""


@dataclass(frozen=True, slots=True)
class RunEstimate:
    """How much the first run at a checkpoint will process.

    Attributes:
        input: How much input there is.
        windows: At least how many windows the input takes, before the speed of the readers is known.
    """

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

    Args:
        app: The app.
        parallelism: Tasks that will run at the same time.
        within_s: Seconds after which to stop, with what was counted by then.

    Returns:
        The sum, or None where no input operator can estimate its input.
    """
    found = InputEstimate()
    storage = app.attributes.storage_context()
    windows = 0
    inputs = [node.operator for node in app.operators.values() if isinstance(node.operator, Estimator)]
    for operator in inputs:
        part = operator.estimate(within_s / len(inputs), storage)
        found += part
        windows = max(windows, first_windows(part, operator.window_limits(), parallelism))
    return RunEstimate(found, windows) if inputs else None
