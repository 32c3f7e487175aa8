"""What an operator is given at run time: its partition, counters and outputs, and the services of the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from operator import index
from typing import Any, Literal, NamedTuple, Protocol

from typing_extensions import Buffer

from dagflow.api.refused_records import RefusedLog
from dagflow.api.sources import FileSources
from dagflow.storage.context import StorageContext
from dagflow.storage.file_facts import FileFacts
from dagflow.storage.pending import HeldFile, PendingFile


class SideData(Protocol):
    """One version of a side input, as a task gets it."""

    @property
    def name(self) -> str:
        """Different for different bytes; a task may keep by it what it makes of them."""

    @property
    def version(self) -> str:
        """What the operator calls the version."""

    def read(self) -> bytes:
        """The bytes that SideInput.read_side_input gave.

        Raises:
            DagflowError: They cannot be read.
        """


class OutputFile(Protocol):
    """A file that is being written; it becomes visible when its window is committed."""

    def write(self, data: Buffer) -> None:
        """Append bytes.

        Raises:
            StorageError: The store refused them.
        """

    def close(self, *, records: int, sources: FileSources | None = None, facts: FileFacts | None = None) -> None:
        """End the file and hand it to the window's commit.

        Args:
            records: How many records the file holds, for the journal.
            sources: Which blocks they come from; None where that is not known.
            facts: What the operator's target has to know of the file, which then shows it in a transaction; None
                for a file that is visible by its name. See TransactionalSink.
        """


class OutputFiles(Protocol):
    """Where an operator opens the files that its window will publish."""

    def open(self, url: str) -> OutputFile:
        """Begin the file that will be published as url; when the window runs again it must give the same name.

        Raises:
            StorageError: The store refused it.
        """

    def hold(self, url: str) -> OutputFile:
        """Begin a file that is held back, and that a later window reads before it makes others of it; see HoldsFiles.

        Args:
            url: A name beside which it is kept. No file is ever published under it.

        Raises:
            StorageError: The store refused it.
        """


@dataclass(frozen=True, slots=True)
class WindowBudget:
    """How much a control operator should emit into the current window at most.

    The first tuple of a window is always within the budget, however large.

    Attributes:
        tuples: Number of tuples.
        size_bytes: Sum of the sizes of the tuples.
    """

    tuples: int
    size_bytes: int


OWN_ID_BITS = 48
"""An id that an operator creates has its operator_index above so many bits. Checkpoints hold ids: it never changes."""

RETRY_ID_BITS = 20
"""Of these bits so many number the tuples of a window whose refused records are tried again; the others, windows."""


class ControlServices(Protocol):
    """What the driver offers to control operators beyond the ordinary context."""

    @property
    def follow(self) -> bool:
        """Whether the run goes on watching for new input."""

    @property
    def budget(self) -> WindowBudget:
        """The budget of the current window."""

    @property
    def operator_index(self) -> int:
        """A small number that each operator that feeds partitioned ones keeps over all runs.

        Operators that create ids put it into them, above OWN_ID_BITS, so that no two ids are equal.
        """

    @property
    def held_files(self) -> Sequence[HeldFile]:
        """For a Grouper: the files that windows have held back and no planned window takes, oldest first."""

    @property
    def output_locations(self) -> Sequence[str]:
        """Where the app writes: the locations that its operators publish into, and its checkpoint."""

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """Apply a function to items in tasks, and wait for it; several threads may call it at the same time.

        The function, the items and the results are pickled.

        Returns:
            The results, in the order of the items.

        Raises:
            DagflowError: The tasks failed.
        """

    def watched(self, what: str) -> AbstractContextManager[None]:
        """Have a warning told where the calling thread stands still within the block, such as on a store that is gone.

        The driver watches the operator's own methods by itself: this is for threads of the operator.

        Args:
            what: What the thread does, as the end of a sentence.
        """

    @property
    def state_url(self) -> str:
        """A directory in the checkpoint for this operator alone, for state that is too large for a snapshot.

        It exists once something is created in it. What no snapshot names may be removed.
        """


UNKNOWN_SUM = 1 << 62
"""Booked in OperatorContext.accounting under a key whose sum is not known, because a part of it was left out."""


Cause = Literal["unreadable", "superseded", "deleted"]
"""Why a range was left out; see Skipped."""

VersionKey = tuple[str, int, int, str]
"""A version of a file: its URL, its length, modification time and etag."""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A range of a file that was left out.

    Attributes:
        url: The file, as it was planned; what is shown of it is redacted().
        start: First byte.
        end: One past the last byte, of the version that was planned.
        reason: Why, in words.
        cause: "unreadable" where the version cannot be read; "superseded" where the file no longer has it, "deleted"
            where there is no file.
        size_bytes: Length of the version.
        mtime_ns: When it was modified, in nanoseconds since 1970; 0 where the store has no times.
        etag: The store's tag of it, or "".
        file_id: Its inode number; 0 where unknown.
        has_other_bytes: Whether the file was seen to have other bytes, though its size and time may be the version's.
        lost_start: First byte of what is in no output for it: of a compressed file that is cut, records may lie
            elsewhere than in the planned range. As start where it is not given.
        lost_end: One past the last of these bytes.
    """

    url: str
    start: int
    end: int
    reason: str
    cause: Cause = "unreadable"
    size_bytes: int = 0
    mtime_ns: int = 0
    etag: str = ""
    file_id: int = 0
    has_other_bytes: bool = False
    lost_start: int = -1
    lost_end: int = -1

    @property
    def lost_bytes(self) -> int:
        """How many bytes of the file are in no output for it."""
        return self.lost_end - self.lost_start

    @property
    def is_gone(self) -> bool:
        """Whether the version was not there."""
        return self.cause != "unreadable"

    @property
    def version(self) -> VersionKey:
        """Which version of which file."""
        return self.url, self.size_bytes, self.mtime_ns, self.etag

    @property
    def version_range(self) -> tuple[VersionKey, int, int]:
        """Which range of which version, regardless of the cause."""
        return self.version, self.start, self.end

    def __post_init__(self) -> None:
        # The journal takes Python's own numbers only, and positions are often computed in NumPy.
        object.__setattr__(self, "start", index(self.start))
        object.__setattr__(self, "end", index(self.end))
        if self.lost_start < 0:
            object.__setattr__(self, "lost_start", self.start)
            object.__setattr__(self, "lost_end", self.end)


class MovedRange(NamedTuple):
    """A range of a file that a reader found under another name, where it was read, or is left out again.

    Attributes:
        url: The name before.
        start: First byte, of the content where the file is compressed since.
        end: One past the last byte.
    """

    url: str
    start: int
    end: int


_set_count = Counter.__setitem__
"""Without super(), which takes as long as the rest of Counts.__setitem__."""


class Counts(Counter[str]):
    """Counts by name, each Python's own whole number: one of NumPy's cannot be written to the journal.

    Any other value, and a name that is no text, is refused where it is counted, so that the traceback shows the
    operator's own code.
    """

    def __setitem__(self, name: str, count: int) -> None:
        if type(count) is not int:
            count = _whole(name, count)
        if type(name) is not str and not isinstance(name, str):
            raise TypeError(f"a counter's name is text; got {name!r} ({type(name).__name__})")
        _set_count(self, name, count)

    def setdefault(self, name: str, default: int = 0) -> int:
        """The count of a name, which is set where it has none."""
        if name not in self:
            self[name] = default
        return self[name]

    def update(self, counted: Any = (), /, **counts: int) -> None:
        """Add names, or counts by name."""
        for name, count in Counter(counted, **counts).items():
            self[name] += count


def _whole(name: str, count: Any) -> int:
    try:
        return int(index(count))
    except TypeError:
        raise TypeError(
            f"the counter {name!r} takes whole numbers, and was given {count!r} ({type(count).__name__})"
        ) from None


class Progress:
    """Counts the bytes that a task has read so far, for the display of the running window and the watch of the task.

    The counters of a window are what is added up and journaled.

    Attributes:
        bytes_read: Bytes read so far.
        steps: How often an operator has said that it goes on.
    """

    def __init__(self) -> None:
        self.bytes_read = self.steps = 0

    def add(self, bytes_read: int) -> None:
        """Count bytes that were read since the last call; cheap enough for each batch."""
        self.bytes_read += bytes_read

    def step(self) -> None:
        """Say that the task goes on, where no bytes can be counted yet: it waits for its rate, for example."""
        self.steps += 1

    def mark(self) -> tuple[int, int]:
        """Equal as long as there is no progress; other threads may call this."""
        return self.bytes_read, self.steps


@dataclass(slots=True)
class OperatorContext:
    """The surroundings of one operator instance.

    Attributes:
        app: The app's name.
        operator: The operator's name in the app.
        partition: 0-based number of the partition; 0 for control operators.
        partitions: How many partitions the operator has in this window.
        share: This partition's part of a rate that all partitions share, in this window; the parts of those that run
            at the same time add up to 1 at most.
        counters: Counts by name; they are added up over partitions, and shown by metrics and status. Takes whole
            numbers of Python or NumPy, and truth values; all else, and a name that is no text, is a TypeError.
        accounting: Byte accounting: sums by key that come to zero when every byte is accounted for. An operator
            books what it takes over as positive, and what it has passed on as negative. A run that completes with
            any other sum fails. A key that was given the value UNKNOWN_SUM is not checked.
        skipped: What a reader has left out; it is journaled with the window.
        moved: Takes what a reader has found of files under other names than those that they were planned under before.
        refused: Takes down where refused records lie, for operators that can read them again; see RejectRetrier.
        source_events: Takes what control operators shall know of the window's tuples, picklable; None where none
            listens. See SourceEventListener.
        progress: Counts the bytes that an operator reads, for the display of the running window.
        connected: Names of the operator's ports that the app connects.
        storage: Reaches the stores of the app: files to read, directories to list.
        outputs: Where files to be published are opened; None in control operators that work when a window is planned.
        control: What the driver offers; None in partitioned operators.
        prescan: What the operator's pre-scan kept when the window was planned; None for nothing.
        is_reprocessed: Whether what the window makes replaces what it has published before.
        may_hold: Whether files may be held back for a later window; see HoldsFiles.
        gone: Versions of files that an earlier attempt at the window found gone when it had read a part of them, or
            that a window which is replayed has left out as gone; they are left out whole.
        read_in_part: Takes the versions of which a part was read; see gone.
        decided: What the target of the operator has decided for the window; "" for nothing. See Target.decide.
        side_input: The version of its side input that the window sees; None where it has none. See SideInput.
    """

    app: str = "app"
    operator: str = "operator"
    partition: int = 0
    partitions: int = 1
    share: float = 1.0
    counters: Counter[str] = field(default_factory=Counts)
    accounting: Counter[str] = field(default_factory=Counts)
    skipped: list[Skipped] = field(default_factory=list)
    moved: list[MovedRange] = field(default_factory=list)
    refused: RefusedLog = field(default_factory=RefusedLog)
    source_events: list[Any] | None = None
    progress: Progress = field(default_factory=Progress)
    connected: frozenset[str] = frozenset()
    storage: StorageContext = field(default_factory=StorageContext.default)
    outputs: OutputFiles | None = None
    control: ControlServices | None = None
    prescan: Any = None
    is_reprocessed: bool = False
    may_hold: bool = False
    gone: Mapping[VersionKey, Skipped] = field(default_factory=dict)
    read_in_part: set[VersionKey] = field(default_factory=set)
    decided: str = ""
    side_input: SideData | None = None


class RunPreparation(Protocol):
    """What an operator may ask before the first window of a run."""

    @property
    def published(self) -> Iterable[str]:
        """URLs of the files that this checkpoint has published; may be long, and is read from the journal each time."""

    @property
    def storage(self) -> StorageContext:
        """Reaches the stores of the app."""

    @property
    def held_files(self) -> Sequence[PendingFile]:
        """Files that the operator's windows have held back, and that are not published yet; see HoldsFiles.

        Those of windows that are about to be replayed are left out.
        """

    def has_forgotten(self, url: str) -> bool:
        """Whether the journal may have published files below a location that it no longer lists."""

    def claim(self, url: str) -> None:
        """Take a location to publish into for this operator alone; all files that it opens shall lie below.

        Only what is claimed is known before the first window: that the app does not read it, that hosts reach it, and
        that what runs have left there unpublished is removed.

        Raises:
            StorageError: Another operator of the app has it.
        """

    def reads(
        self, url: str, takes_in: Callable[[str], bool] | None = None, *, glob: str = "", is_there: bool = True
    ) -> None:
        """Name a file or directory that tasks will read, so that the hosts of a cluster check that they reach it.

        Args:
            url: Where it is; of a glob the directory that it begins in.
            takes_in: Whether everything in a given directory would be read; a run that publishes into such a
                directory is refused.
            glob: The glob of what is read below; "" where that is everything.
            is_there: Whether it is there now; hosts look for nothing else.
        """
