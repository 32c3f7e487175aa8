"""Operators that run in the driver, and what they may declare."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Collection, Sequence
from typing import Any, ClassVar

from dagflow.api.operator import Capability, Operator
from dagflow.frozen import frozen
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile


class ControlOperator(Operator):
    """An operator that runs once, in the driver, and handles metadata tuples only.

    If it takes in only what other control operators emit, it runs when a window is planned. If a partitioned operator
    reports to it, it runs when the window's results are in, and sees each window once, in order: what it emits, the
    files that it writes and its snapshot are committed with the window.
    """

    runs_at_commit: ClassVar[bool] = False
    """Whether it runs when a window's results are in, whichever operator emits to it."""

    removes_input: ClassVar[bool] = False
    """Whether it removes or archives its input, so that the output may be the only copy; --fresh is refused then."""

    @property
    def corrects(self) -> bool:
        """Whether its tuples may take the place of earlier ones, whose records leave when theirs come in.

        Such a tuple names the version that it replaces, see supersedes_of(); no other tuples are in its window.
        """
        return False

    def unemitted_bytes(self) -> int:
        """Bytes that it knows it will emit in later windows; 0 where they are not known."""
        return 0

    def begin_preview(self, file: str | None) -> None:
        """Called before setup, on an instance that no run uses: scan once, and emit small pieces; optional.

        Args:
            file: The only file to emit, regardless of the properties; None for the files that a run would read.
        """

    def cut_at(self, block_bytes: int) -> None:
        """Called before setup, by tests of an app: cut all files at multiples of a size, at least 1; optional."""


@frozen
class InputEstimate:
    """How much input there is to process.

    Attributes:
        uncut: Files larger than a block that one task must read as a whole, because they are compressed.
        is_partial: Whether there is more, which was not counted for lack of time.
        unreadable: Why a file cannot be read on this machine, judged by its name; "" where all can, as far as known.
    """

    files: int = 0
    blocks: int = 0
    bytes: int = 0
    uncut: int = 0
    is_partial: bool = False
    unreadable: str = ""

    def __add__(self, other: InputEstimate) -> InputEstimate:
        """The sum of both."""
        return InputEstimate(
            self.files + other.files,
            self.blocks + other.blocks,
            self.bytes + other.bytes,
            self.uncut + other.uncut,
            self.is_partial or other.is_partial,
            self.unreadable or other.unreadable,
        )


@frozen
class WindowLimits:
    """How much an input operator emits into one window at most, regardless of its budget; None for no limit.

    Attributes:
        size_bytes: Bytes; one block is always allowed.
    """

    blocks: int | None = None
    files: int | None = None
    size_bytes: int | None = None


class InputOperator(ControlOperator):
    """A control operator at the head of an app: it has no input ports and creates the tuples.

    A DagflowError is raised where the input, or what is known of it, cannot be looked at.
    """

    def emit_tuples(self) -> None:
        """Emit the tuples that there are now; called once or more per window.

        A call that emits nothing means that there is nothing more for now: a run to completion ends when no
        control operator emits anything; a run that follows calls again in a later window.
        """

    def wants_to_follow(self) -> bool:
        """Whether a run of the app watches for new input even if the command line does not ask for it."""
        return False

    def has_news(self) -> bool:
        """Whether the snapshot must be journaled although nothing was emitted; called after emit_tuples.

        Each window costs a record of the journal: return False if the state has not changed.
        """
        return False

    def scan_now(self) -> None:
        """Look for new input at once; called while following, on request."""

    def without_files(self) -> Sequence[str]:
        """Called at the end of a run to completion: its locations, if no run has found a file in any of them."""
        return ()

    def estimate(self, within_s: float, storage: StorageContext) -> InputEstimate:
        """Count what it would emit, without emitting or changing anything; optional.

        Args:
            within_s: Seconds after which to stop, with what was counted by then.
        """
        return InputEstimate()

    def window_limits(self) -> WindowLimits:
        """The limits for a window from its properties."""
        return WindowLimits()

    def explain_input(self, url: str, storage: StorageContext) -> tuple[bool, str] | None:
        """Called on an operator that is not set up, outside of a run.

        Args:
            url: An absolute location.

        Returns:
            Whether a scan now would take the file, apart from what earlier runs have taken; and a sentence that says
            why, with the property that decides. None where it takes no files.
        """
        return None

    def when_taken(self, url: str, storage: StorageContext, state: Any, state_url: str) -> int | None:
        """Called on an operator that is not set up, outside of a run, which may be at work.

        Args:
            url: An absolute location.
            state: The result of snapshot() for the newest planned window.
            state_url: The operator's own directory in the checkpoint; read-only.

        Returns:
            When the newest version of the file was taken, in milliseconds since 1970; 0 where none is known. None where
            it takes no files.
        """
        return None

    event_state_type: ClassVar[Any] = None
    """The type of what event_state returns, like Operator.state_type; None for an operator that takes no events from
    the tasks of the tuples that it emitted.

    Guarantee: it gets the events of each window that this run commits once, in order. The result of event_state is then
    kept with the window's commit, and restored by a later run after the snapshot. So events that a later snapshot
    includes need not be kept here as well.

    Source:
        Source events between readers and enumerators, in Flink's FLIP-27.
    """

    @property
    def wants_source_events(self) -> bool:
        """Whether tasks shall send events; read once, before the first window."""
        return False

    def handle_source_events(self, window_id: int, events: Sequence[Any]) -> None:
        """Called in the driver before a window is committed.

        Args:
            events: The contents of the tasks' OperatorContext.source_events, also about tuples of other operators.
        """

    def event_state(self) -> Any:
        """The state that preserves the events of this window and of earlier ones."""
        return None

    def restore_event_state(self, state: Any) -> None:
        """Restore what event_state returned, after restore."""


class CommitListener(Capability):
    """Declares a control operator that acts outside of dagflow after a window has been committed.

    Guarantee: called for each window, in order, after all its files are published, including files that were held back
    for a later window. At the start of a run it is called for the last published window before it, for which an earlier
    run may have called it already. So a window is skipped only if several windows were published at once, and the run
    ended during the calls for them.
    """

    @abstractmethod
    def committed(self, window_id: int) -> None:
        """Called in the driver: this window, and all before it, are committed and published.

        The effect must be harmless if it is repeated.

        Raises:
            DagflowError: The call failed; the run ends, and the next one calls again for the last published window.
        """


class Grouper(InputOperator):
    """Emits tuples about the held files of another operator's windows; see TransactionalSink.

    Its tuples of a window name all held files up to one of the windows before. When that window is committed, the files
    are not held any more. It keeps no state: ControlServices.held_files has its remaining work.
    """

    @property
    @abstractmethod
    def taken_through(self) -> int:
        """The newest window whose files have been emitted; read after an emission."""

    def rewriting(self, file: PendingFile, blocks: Collection[int]) -> Any:
        """Called where records of a published file are taken out again.

        Args:
            blocks: The ids of the blocks that lose all of their records.

        Returns:
            A tuple for the port `jobs` of the merger, which writes the file again without these records; None where the
            files do not say which records are of which block.
        """
        return None

    @abstractmethod
    def emit_rest(self) -> None:
        """Emit all held files, due or not: all input is processed, or the run shall stop."""
