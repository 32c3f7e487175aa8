"""Results of several windows: held back as parts, which add up, and published as one."""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagflow.api.operator import Capability
from dagflow.api.properties import Millis


class Interval(BaseModel):
    """A length of processing time."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    millis: Annotated[Millis, Field(ge=1, description="milliseconds from the first window of a result to the next")]

    def __str__(self) -> str:
        return f"{{millis: {self.millis}}}"


Over = Literal["window", "run"] | Interval
"""What one result is of: the records of a window, of a run, or of the windows of a time."""


class Accumulator(Capability):
    """Declares an operator in one partition that can hold its result back, to give one for several windows.

    A window whose result is held back leaves a part in the checkpoint. A later window takes in parts: some of them
    in order to leave one instead of them, or all of them to emit the result.

    Guarantee: what a window took in is in exactly one emitted result, whatever crashes and restarts come between.
    """

    over: Over | None
    """What a result is of; None for a run, and while following for a window."""

    @abstractmethod
    def add_part(self, part: bytes) -> None:
        """Called after begin_window, for each part that earlier windows left and this one takes in, oldest first."""

    @abstractmethod
    def take_part(self) -> bytes | None:
        """Called instead of end_window where the result is held back.

        Returns:
            All that was taken in since begin_window; None for nothing.
        """
