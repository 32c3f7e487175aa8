"""The context of an operator at run time: its partition, counters and outputs, and the services of the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import field
from operator import index
from typing import Any, Literal, NamedTuple, Protocol

from typing_extensions import Buffer

from dagflow.api.refused_records import RefusedLog
from dagflow.api.sources import FileSources
from dagflow.errors import DagflowError, MissingError
from dagflow.frozen import frozen, mutable
from dagflow.storage.base import ObjectStore
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.pending import FileFacts, HeldFile, PendingFile


@frozen
class SideData:
    """One version of a side input, as a task gets it.

    Attributes:
        name: Different for different bytes; a task may cache by it what it makes of the bytes.
        version: The operator's name for the version.
        kept: The bytes, or the checkpoint that has them in an object of this name.
    """

    name: str
    version: str
    kept: bytes | ObjectStore

    def read(self) -> bytes:
        """The bytes that SideInput.read_side_input returned; a DagflowError where they cannot be read."""
        if isinstance(self.kept, bytes):
            return self.kept
        try:
            return self.kept.read(self.name)
        except MissingError as error:
            raise DagflowError(
                f"the copy of a side input is not in the checkpoint: {redacted(self.kept.url)}/{self.name}",
                hint="put the checkpoint where all hosts of the cluster reach it; if it was there, put it back",
            ) from error


class OutputFile(Protocol):
    """A file that is being written; it becomes visible when its window is committed.

    A StorageError is raised where the store refuses it, or its bytes.
    """

    def write(self, data: Buffer) -> None:
        """Append bytes."""

    def close(self, *, records: int, sources: FileSources | None = None, facts: FileFacts | None = None) -> None:
        """End the file, and pass it to the window's commit.

        Args:
            records: The number of records in the file, for the journal.
            sources: The blocks that the records come from; None where they are not known.
            facts: Facts for the operator's target, which shows the file in a transaction; None for a file that is
                visible by its name. See TransactionalSink.
        """


class OutputFiles(Protocol):
    """Opens the files that the window of an operator publishes."""

    def open(self, url: str) -> OutputFile:
        """Start the file that will be published as url; when the window runs again it must use the same name."""

    def hold(self, url: str) -> OutputFile:
        """Start a file that is held back, and that a later window merges into others; see TransactionalSink.

        Args:
            url: A name beside which it is kept. No file is ever published under it.
        """


@frozen
class WindowBudget:
    """How much a control operator may emit into the current window.

    The first tuple of a window is always within the budget, however large.

    Attributes:
        size_bytes: Sum of the sizes of the tuples.
    """

    tuples: int
    size_bytes: int


OWN_ID_BITS = 48
"""Number of bits below the operator_index in an id that an operator creates. Checkpoints contain ids: it never
changes."""

RETRY_ID_BITS = 20
"""How many of these bits number the tuples of a window that retries refused records; the others number windows."""


class ControlServices(Protocol):
    """The services of the driver for control operators beyond the ordinary context."""

    @property
    def follow(self) -> bool:
        """Whether the run keeps watching for new input."""

    @property
    def budget(self) -> WindowBudget:
        """The budget of the current window."""

    @property
    def operator_index(self) -> int:
        """A small number of each operator that feeds partitioned ones; it stays the same over all runs.

        Operators that create ids put it into them, above OWN_ID_BITS, so that all ids differ.
        """

    @property
    def held_files(self) -> Sequence[HeldFile]:
        """For a Grouper: the held files that no planned window takes, oldest first."""

    @property
    def output_locations(self) -> Sequence[str]:
        """Where the app writes: the locations that its operators publish into, and its checkpoint."""

    def in_tasks(self, function: Callable[[Any], Any], items: list[Any]) -> list[Any]:
        """The results of a function for items, in their order; several threads may call it at the same time.

        It is applied in tasks. The function, the items and the results are pickled.

        Raises:
            DagflowError: The tasks failed.
        """

    def watched(self, what: str) -> AbstractContextManager[None]:
        """Log a warning if the calling thread stalls within the block, for example on an unreachable store.

        The driver watches the operator's own methods by itself: this is for the operator's threads.

        Args:
            what: Description of the thread's work, as the end of a sentence.
        """

    @property
    def state_url(self) -> str:
        """A directory in the checkpoint for this operator alone, for state that is too large for a snapshot.

        It exists once something is created in it. Files that no snapshot names may be removed.
        """


UNKNOWN_SUM = 1 << 62
"""Booked in OperatorContext.accounting under a key whose sum is unknown, because a part of it was left out."""


Cause = Literal["unreadable", "superseded", "deleted", "corrected"]
"""Why a range was left out; see Skipped."""

VersionKey = tuple[str, int, int, str]
"""A version of a file: its URL, size, modification time and etag."""


def version_key_of(item: Any) -> VersionKey:
    """The version of the file of a tuple that is a SourceRange."""
    version = item.version
    return item.url, version.size_bytes, version.mtime_ns, version.etag


@frozen
class Skipped:
    """A range of a file that was left out.

    Attributes:
        url: The file, as it was planned; shown redacted().
        start: First byte.
        end: One past the last byte of the range in the planned version.
        reason: Why it was left out, in words.
        cause: "unreadable" where the version cannot be read; "superseded" where the file has another version, "deleted"
            where the file does not exist; "corrected" where its records were taken out of the output again.
        size_bytes: Size of the version.
        mtime_ns: Its modification time, in nanoseconds since 1970; 0 where the store has no times.
        etag: The store's tag of it, or "".
        file_id: Its inode number; 0 where unknown.
        has_other_bytes: Whether the file was seen to have other bytes, though its size and time may be the version's.
        lost_start: First byte that is missing in the output: for a cut compressed file, records may be outside of the
            planned range. Equal to start by default.
        lost_end: One past the last byte that is missing in the output.
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

    @classmethod
    def of(cls, item: Any, reason: str, cause: Cause = "corrected", **lost: Any) -> Skipped:
        """The part of a tuple that is a SourceRange; with more attributes where not just this part is missing."""
        url, size_bytes, mtime_ns, etag = version_key_of(item)
        version = size_bytes, mtime_ns, etag, item.version.file_id
        return cls(url, item.start, item.end, reason, cause, *version, **lost)

    @property
    def lost_bytes(self) -> int:
        """How many bytes of the file are missing in the output because of this range."""
        return self.lost_end - self.lost_start

    @property
    def is_gone(self) -> bool:
        """Whether the version was gone."""
        return self.cause in ("superseded", "deleted")

    @property
    def version(self) -> VersionKey:
        """The file and its version."""
        return self.url, self.size_bytes, self.mtime_ns, self.etag

    @property
    def version_range(self) -> tuple[VersionKey, int, int]:
        """The version and the range, regardless of the cause."""
        return self.version, self.start, self.end

    def __post_init__(self) -> None:
        # The journal accepts Python's own numbers only, and positions are often computed in NumPy.
        object.__setattr__(self, "start", index(self.start))
        object.__setattr__(self, "end", index(self.end))
        if self.lost_start < 0:
            object.__setattr__(self, "lost_start", self.start)
            object.__setattr__(self, "lost_end", self.end)


class WaitingEnd(NamedTuple):
    """Bytes at the end of a file that a reader has left, because they may go on.

    Attributes:
        url: The file.
        waiting_bytes: How many they are.
        file_id: Its inode number; 0 where unknown.
        since_ms: When that was committed, in milliseconds since 1970.
    """

    url: str
    waiting_bytes: int
    file_id: int = 0
    since_ms: int = 0


class MovedRange(NamedTuple):
    """A range of a file that a reader found under another name, and has read, or left out again.

    Attributes:
        url: The earlier name.
        start: First byte; in the content, if the file has been compressed since.
        end: One past the last byte.
    """

    url: str
    start: int
    end: int


_set_count = Counter.__setitem__
"""Without super(), which takes as long as the rest of Counts.__setitem__."""


class Counts(Counter[str]):
    """Counts by name, as Python's own integers: those of NumPy cannot be written to the journal.

    Any other value, and a name that is no text, is refused at once, so that the traceback shows the operator's own
    code.
    """

    def __setitem__(self, name: str, count: int) -> None:
        if type(count) is not int:
            count = _whole(name, count)
        if type(name) is not str and not isinstance(name, str):
            raise TypeError(f"a counter's name is text; got {name!r} ({type(name).__name__})")
        _set_count(self, name, count)

    def setdefault(self, name: str, default: int = 0) -> int:
        """The count of a name; sets it if the name has none."""
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

    Only the counters of a window are added up and journaled.

    Attributes:
        bytes_read: Bytes read so far.
        steps: How often an operator has reported progress without bytes.
    """

    def __init__(self) -> None:
        self.bytes_read = self.steps = 0

    def add(self, bytes_read: int) -> None:
        """Count bytes that were read since the last call; cheap enough for each batch."""
        self.bytes_read += bytes_read

    def step(self) -> None:
        """Report progress where no bytes can be counted yet, for example while waiting for the rate limit."""
        self.steps += 1

    def mark(self) -> tuple[int, int]:
        """Equal as long as there is no progress; other threads may call this."""
        return self.bytes_read, self.steps


@mutable
class OperatorContext:
    """The context of one operator instance.

    Attributes:
        app: The app's name.
        operator: The operator's name in the app.
        partition: 0-based number of the partition; 0 for control operators.
        partitions: The operator's number of partitions in this window.
        share: This partition's share of a rate limit in this window; the shares of partitions that run at the same
            time add up to at most 1.
        counters: Counts by name; added up over partitions, and shown by metrics and status. Values are integers of
            Python or NumPy, or truth values; any other value, and a name that is no text, raises a TypeError.
        accounting: Byte accounting: sums by key that must be zero when every byte is accounted for. An operator books
            what it takes over as positive, and what it has passed on as negative. A run that completes with any other
            sum fails. A key with the value UNKNOWN_SUM is not checked.
        skipped: The ranges that a reader has left out; journaled with the window.
        moved: The ranges that a reader has found under other names than those that they were planned under.
        waiting: The ends of files that a reader has left, because they may go on.
        refused: The positions of refused records, from operators that can read them again; see TupleReader.
        source_events: Events about the window's tuples for control operators, picklable; None where none listens. See
            InputOperator.
        progress: Counts the bytes that an operator reads, for the display of the running window.
        connected: Names of the operator's ports that the app connects.
        storage: Reaches the stores of the app: files to read, directories to list.
        outputs: Opens files to be published; None in control operators that run when a window is planned.
        control: The services of the driver; None in partitioned operators.
        prescan: The state of the operator's pre-scan when the window was planned; None for nothing.
        is_reprocessed: Whether the window has run before, so that its input must be what it was.
        may_hold: Whether files may be held back for a later window; see TransactionalSink.
        gone: Versions of files to leave out whole: an earlier attempt at the window found them gone when it had read a
            part of them, or the replayed window has left them out as gone.
        retracted: Versions of files whose records leave with the window; see KeptByFile.
        read_in_part: The versions that were read in part; see gone.
        decided: The decision of the operator's target for the window; "" for none. See Target.decide.
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
    waiting: list[WaitingEnd] = field(default_factory=list)
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
    retracted: Collection[VersionKey] = ()
    read_in_part: set[VersionKey] = field(default_factory=set)
    decided: str = ""
    side_input: SideData | None = None


class RunPreparation(Protocol):
    """The services for an operator before the first window of a run."""

    @property
    def published(self) -> Iterable[str]:
        """URLs of the files that this checkpoint has published; may be many, read from the journal each time."""

    @property
    def storage(self) -> StorageContext:
        """Reaches the stores of the app."""

    @property
    def held_files(self) -> Sequence[PendingFile]:
        """Files that the operator's windows have held back, and that are not published yet; see TransactionalSink.

        Files of windows that are about to be replayed are left out.
        """

    @property
    def writer(self) -> str:
        """The name by which the operator's target knows the operator, as in Target.open(); "" where it is not known."""

    def has_forgotten(self, url: str) -> bool:
        """Whether the journal may have published files below a location that it no longer lists."""

    def claim(self, url: str) -> None:
        """Reserve a location to publish into for this operator alone; all files that it opens must be below.

        Only for a claimed location, dagflow checks before the first window that the app does not read it and that hosts
        reach it, and removes the unpublished leftovers of earlier runs.

        Raises:
            StorageError: Another operator of the app has claimed the location.
        """

    def reads(
        self, url: str, takes_in: Callable[[str], bool] | None = None, *, glob: str = "", is_there: bool = True
    ) -> None:
        """Name a file or directory that tasks will read, so that the hosts of a cluster check that they reach it.

        Args:
            url: Its location; for a glob the directory in which it begins.
            takes_in: Whether everything in a given directory would be read; a run that publishes into such a
                directory is refused.
            glob: The glob of the files to read below; "" for all.
            is_there: Whether it exists now; hosts look for nothing else.
        """
