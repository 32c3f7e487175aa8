"""Operators that run in the driver, and what they may declare."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from dagflow.api.operator import Capability, Operator
from dagflow.storage.context import StorageContext


class ControlOperator(Operator):
    """An operator that runs once, in the driver, and handles metadata tuples only.

    Where it takes in only what other control operators emit, it works when a window is planned. Where something
    that runs in partitions reports to it, it works when the window's results are in, and sees each window once,
    in order: what it emits, the files that it writes and its snapshot are committed with the window.
    """

    runs_at_commit: ClassVar[bool] = False
    """Whether it works when a window's results are in, whichever operator emits to it."""

    removes_input: ClassVar[bool] = False
    """Whether it puts away what was read, so that what is published may be the only copy; --fresh is refused then."""

    def unemitted_bytes(self) -> int:
        """Bytes that it knows it will emit in later windows; 0 where it cannot tell."""
        return 0


class InputOperator(ControlOperator):
    """A control operator at the head of an app: it has no input ports and creates the tuples."""

    def emit_tuples(self) -> None:
        """Emit what there is now; called once or more per window.

        A call that emits nothing means that there is nothing more for now: a run to completion ends when no
        control operator emits anything; a run that follows calls again in a later window.
        """

    def wants_to_follow(self) -> bool:
        """Whether a run of the app watches for new input, also where the command line does not ask for it."""
        return False

    def has_news(self) -> bool:
        """Whether the snapshot must be journaled although nothing was emitted; called after emit_tuples.

        Each window costs a record of the journal: return False where there is nothing new to remember.
        """
        return False

    def scan_now(self) -> None:
        """Look for new input without waiting; called while following, on request."""


@dataclass(frozen=True, slots=True)
class InputEstimate:
    """How much input there is to process.

    Attributes:
        files: Number of files.
        blocks: Number of blocks.
        bytes: Bytes in them.
        uncut: Files larger than a block that one task must read as a whole, because they are compressed.
        is_partial: Whether there is more, which was not counted for lack of time.
        unreadable: Why a file cannot be read on this machine, as its name says; "" where none is known.
    """

    files: int = 0
    blocks: int = 0
    bytes: int = 0
    uncut: int = 0
    is_partial: bool = False
    unreadable: str = ""

    def __add__(self, other: InputEstimate) -> InputEstimate:
        """Both together."""
        return InputEstimate(
            self.files + other.files,
            self.blocks + other.blocks,
            self.bytes + other.bytes,
            self.uncut + other.uncut,
            self.is_partial or other.is_partial,
            self.unreadable or other.unreadable,
        )


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """The most that an input operator emits into one window, whatever its budget; None for no limit.

    Attributes:
        blocks: Number of blocks.
        files: Number of files.
        size_bytes: Bytes, but one block always.
    """

    blocks: int | None = None
    files: int | None = None
    size_bytes: int | None = None


class Estimator(Capability):
    """Declares an input operator that can say what it would emit, without emitting or changing anything."""

    @abstractmethod
    def estimate(self, within_s: float, storage: StorageContext) -> InputEstimate:
        """Count what there is.

        Args:
            within_s: Seconds after which to stop, with what was counted by then.
            storage: Reaches the stores of the app.

        Raises:
            DagflowError: The input cannot be looked at.
        """

    def window_limits(self) -> WindowLimits:
        """The limits that its properties set to a window."""
        return WindowLimits()


class PreviewSource(Capability):
    """Declares a control operator whose input can be looked at, a little of it, without a run."""

    @abstractmethod
    def begin_preview(self, file: str | None) -> None:
        """Called before setup, on an instance that no run uses: look once, and give small pieces.

        Args:
            file: The only file to give, whatever the properties say of files; None for those that a run would read.
        """


class BlockSource(Capability):
    """Declares a control operator that cuts what it emits into blocks, wherever that may be."""

    @abstractmethod
    def cut_at(self, block_bytes: int) -> None:
        """Called before setup, by tests of an app: cut all files at multiples of a size, whatever the properties say.

        Args:
            block_bytes: The size, at least 1.
        """


class CommitListener(Capability):
    """Declares a control operator that acts on the world outside after a window has been committed.

    Guarantee: called for each window, in order, after all its files are published, with what it held back for a later
    window. When a run begins, called for the last such window before it, for which an earlier run may have called it
    already. So a window is passed over only where a run ended while it called for several windows that were published
    at once.
    """

    @abstractmethod
    def committed(self, window_id: int) -> None:
        """Called in the driver: this window, and all before it, are committed and published.

        What is done here must do no harm when it is done twice.

        Args:
            window_id: The window; the first one is 1.

        Raises:
            DagflowError: It failed; the run ends, and the next one calls again, for the last published window.
        """


class SourceEventListener(Capability):
    """Declares a control operator that takes in what tasks saw of the tuples that it emitted.

    Guarantee: it gets the events of each window that this run commits once, in order. What event_state returns then
    is kept with the window's commit, and given back to a later run after its snapshot. So what a snapshot has that
    was taken after an event need not be kept here as well.

    Source:
        Source events between readers and enumerators, in Flink's FLIP-27.
    """

    event_state_type: ClassVar[type | None] = None
    """The frozen dataclass of what event_state returns, kept like Operator.state_type; None: it is pickled."""

    @property
    @abstractmethod
    def wants_source_events(self) -> bool:
        """Whether tasks shall send events; read once, before the first window."""

    @abstractmethod
    def handle_source_events(self, window_id: int, events: Sequence[Any]) -> None:
        """Called in the driver before a window is committed.

        Args:
            window_id: The window.
            events: What its tasks put into OperatorContext.source_events, also of tuples of other operators.
        """

    @abstractmethod
    def event_state(self) -> Any:
        """What must not be lost of the events of this window and of earlier ones."""

    @abstractmethod
    def restore_event_state(self, state: Any) -> None:
        """Take back what event_state returned, after restore."""
