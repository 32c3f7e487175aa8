"""How much an input operator expects to emit: for people who look at a plan before they run it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from dagflow.storage.context import StorageContext


@dataclass(frozen=True, slots=True)
class Estimate:
    """How much there is to process.

    Attributes:
        files: Number of files.
        blocks: Number of blocks.
        bytes: Bytes in them.
        uncut: Files larger than a block that one task must read as a whole, because they are compressed.
        is_partial: Whether there is more, which was not counted for lack of time.
    """

    files: int = 0
    blocks: int = 0
    bytes: int = 0
    uncut: int = 0
    is_partial: bool = False

    def __add__(self, other: Estimate) -> Estimate:
        """Both together."""
        return Estimate(
            self.files + other.files,
            self.blocks + other.blocks,
            self.bytes + other.bytes,
            self.uncut + other.uncut,
            self.is_partial or other.is_partial,
        )


@runtime_checkable
class Estimating(Protocol):
    """An input operator that can say what it would emit, without emitting or changing anything."""

    def estimate(self, within_s: float, storage: StorageContext) -> Estimate:
        """Count what there is.

        Args:
            within_s: Seconds after which to stop, with what was counted by then.
            storage: Reaches the stores of the app.

        Raises:
            DagflowError: The input cannot be looked at.
        """
        ...
