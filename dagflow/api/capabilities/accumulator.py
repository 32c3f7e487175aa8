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

    millis: Annotated[
        Millis, Field(ge=1, description="milliseconds from the first window of one result to that of the next")
    ]

    def __str__(self) -> str:
        return f"{{millis: {self.millis}}}"


Over = Literal["window", "run"] | Interval
"""The span of one result: a window, a run, or the windows of an interval."""


class Accumulator(Capability):
    """Declares an operator in one partition that can hold its result back, to give one for several windows.

    A window whose result is held back leaves a part in the checkpoint. A later window takes in parts: some of them to
    leave one instead, or all of them to emit the result.

    Guarantee: the input of a window is in exactly one emitted result, despite any crashes and restarts.
    """

    over: Over | None
    """The span of a result; None for a run, or a window while following."""

    @abstractmethod
    def add_part(self, part: bytes) -> None:
        """Called after begin_window, for each part of earlier windows that this one takes in, oldest first."""

    @abstractmethod
    def take_part(self) -> bytes | None:
        """Called instead of end_window where the result is held back.

        Returns:
            All that was taken in since begin_window; None for nothing.
        """
