"""Output that readers do not see before its window is committed.

A task opens pending files and hands what their close() returns to the driver; the driver publishes them after
the journal holds their names. A pending file whose name reaches no driver is never published, so tasks of dead
drivers do no harm.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Literal

from typing_extensions import Buffer

from dagflow.errors import LostOutputError, StorageError
from dagflow.storage.checksums import updated_crc32
from dagflow.storage.file_facts import FileFacts
from dagflow.storage.location import redacted

PENDING_DIRECTORY = ".dagflow-pending"
Durability = Literal["process", "power"]
"""What a file survives: "process" the death of every process; "power" also a power loss, at the price of waiting for
the disk. Object stores always do the latter."""


@dataclass(frozen=True, slots=True)
class PendingFile:
    """A complete file that waits for its window's commit.

    Attributes:
        final_url: The name under which it will be published.
        pending_url: Where its bytes are until then; for an unfinished upload a name that no store shows.
        size_bytes: Its length.
        records: How many records its writer counted.
        crc32: Checksum of its bytes, or None where none was asked for.
        token: What an object store needs to complete the upload, as text; "" elsewhere.
        facts: What the transaction has to know that makes it visible; mostly None where its name does.
    """

    final_url: str
    pending_url: str
    size_bytes: int
    records: int
    crc32: int | None = None
    token: str = ""
    facts: FileFacts | None = None

    @property
    def target(self) -> str:
        """The operator whose target makes the file visible; "" where its name does."""
        return "" if self.facts is None else self.facts.operator

    def to_json(self) -> dict[str, Any]:
        """The file as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PendingFile:
        """The file that to_json() described."""
        return cls(**{**value, "facts": FileFacts.from_json(value.get("facts"))})


@dataclass(frozen=True, slots=True)
class HeldFile:
    """A pending file of a committed window that a later window takes in; see api/grouper.py.

    Attributes:
        window_id: The window that wrote it.
        held_ms: When that window was committed, in milliseconds since 1970.
        file: The file; its facts have what `held` says.
        since_window: The oldest window of which it may have something, where results over several windows are in it;
            0 where it is of its own window only.
    """

    window_id: int
    held_ms: int
    file: PendingFile
    since_window: int = 0


class PendingWriter(ABC):
    """A pending file that is being written; lives and ends in one task.

    Args:
        final_url: The name under which it will be published.
        checksum: Whether to compute crc32.
    """

    def __init__(self, final_url: str, *, checksum: bool) -> None:
        self._final = final_url
        self._crc32 = 0 if checksum else None
        self._size_bytes = 0

    def _count(self, view: memoryview) -> None:
        """Take down bytes that were written."""
        self._size_bytes += len(view)
        if self._crc32 is not None:
            self._crc32 = updated_crc32(view, self._crc32)

    def _written(self, pending_url: str, records: int, token: str = "") -> PendingFile:
        """What close() returns for the bytes that were taken down."""
        return PendingFile(self._final, pending_url, self._size_bytes, records, self._crc32, token)

    @abstractmethod
    def write(self, data: Buffer) -> None:
        """Append bytes; the buffer may be reused as soon as this returns.

        Raises:
            StorageError: The store refused them.
        """

    def end(self) -> int:
        """Send what is left without waiting for it; nothing may be written afterwards, and close() waits.

        Returns:
            How many bytes are held in memory at most until close(); 0 where close() does all the work.

        Raises:
            StorageError: The store refused what was sent before.
        """
        return 0

    @abstractmethod
    def close(self, *, records: int) -> PendingFile:
        """Complete the file, still unseen.

        Args:
            records: How many records it holds.

        Raises:
            StorageError: The store refused.
        """

    @abstractmethod
    def abandon(self) -> None:
        """Remove what was written; does nothing after close() or a second time, and raises nothing."""


class PendingFiles(ABC):
    """How one kind of store keeps output unseen, and publishes it. URLs are absolute, see location.absolute."""

    @abstractmethod
    def open(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> PendingWriter:
        """Begin a file that readers do not see.

        Args:
            final_url: The name under which it will be published.
            tag: What pending_tag() gave the driver.
            durability: What the file survives.
            checksum: Whether to compute crc32, which is cheap where isal is installed (checksums.py).

        Raises:
            StorageError: The store refused.
        """

    def open_held(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> PendingWriter:
        """Begin a file that any process reads at its pending_url, and that is discarded or swept, but not published.

        Stores whose pending files cannot be read keep it in another way.

        Args:
            final_url: A name beside which it is kept.
            tag: As for open().
            durability: As for open().
            checksum: As for open().

        Raises:
            StorageError: The store refused.
        """
        return self.open(final_url, tag=tag, durability=durability, checksum=checksum)

    @abstractmethod
    def publish(self, pending: PendingFile, durability: Durability = "process") -> None:
        """Make a pending file visible under its final name, at once and as a whole; doing it again does nothing.

        Raises:
            StorageError: The final name holds something else, which is left as it is; or the pending file is lost.
        """

    @abstractmethod
    def replace(self, pending: PendingFile, durability: Durability = "process") -> None:
        """Make a pending file visible under its final name in the place of what is there, at once and as a whole.

        Doing it again does nothing. Readers see the old file or the new one, where the store has a move or an
        upload that replaces; elsewhere the name may be missing for a moment.

        Raises:
            StorageError: The pending file is lost, or the store refused.
        """

    @abstractmethod
    def is_whole(self, pending: PendingFile) -> bool:
        """Whether replace() can succeed: the file is complete and waits, or is in its place already.

        Raises:
            StorageError: The store refused.
        """

    @abstractmethod
    def discard(self, pending: PendingFile) -> None:
        """Remove a pending file that will not be published; one that is gone is no error.

        Raises:
            StorageError: The store refused.
        """

    def discard_rivals(self, pending: PendingFile) -> None:
        """End the unfinished uploads that dead attempts left for the final name of a published file.

        To be called after publishing a window that was replayed or whose tasks were retried. Only stores whose
        unfinished uploads do not show whose they are need it; elsewhere sweep() finds such leftovers.

        Raises:
            StorageError: The store refused.
        """
        return

    @abstractmethod
    def sweep(
        self,
        root_url: str,
        *,
        owner: str,
        before_epoch: int,
        require_right: Callable[[], None],
        keep: Collection[str] = (),
    ) -> int:
        """Remove the pending files that earlier drivers of a checkpoint left below an output directory.

        Other checkpoints' pending files are not touched.

        Args:
            root_url: The output directory; nothing happens where there is none.
            owner: What pending_tag() was given.
            before_epoch: The current driver's epoch: only what earlier ones left is removed.
            require_right: Called before anything is removed that may be a later driver's; raises where one has
                taken over.
            keep: pending_url of the files that a committed window still has to publish.

        Returns:
            How many files were removed.

        Raises:
            StorageError: The store refused.
        """

    def sync_names(self, urls: Iterable[str]) -> None:
        """Make names that were published, replaced or removed survive a power loss, where that takes a step more.

        Raises:
            StorageError: The store refused.
        """
        return


def pending_tag(owner: str, epoch: int) -> str:
    """The directory name that keeps the pending files of one driver's life apart from all others.

    Args:
        owner: A name that no other checkpoint has: the journal's app_uuid.
        epoch: The driver's epoch.
    """
    return f"{owner}-{epoch:08d}"


def is_earlier_tag(tag: str, owner: str, before_epoch: int) -> bool:
    """Whether pending_tag() gave a tag to a driver of this owner before an epoch."""
    tag_owner, _, epoch = tag.rpartition("-")
    return tag_owner == owner and epoch.isdigit() and int(epoch) < before_epoch


def lost_output(pending: PendingFile) -> LostOutputError:
    """The error for a committed file that is neither pending nor published."""
    return LostOutputError(
        f"output was lost: neither this file nor its pending file {redacted(pending.pending_url)} exists",
        url=redacted(pending.final_url),
    )


def conflict(pending: PendingFile) -> StorageError:
    """The error for a committed file whose name holds something else."""
    return StorageError(
        f"the name is taken by another file than {redacted(pending.pending_url)} ({pending.size_bytes} bytes)",
        url=redacted(pending.final_url),
        hint="move the file that is in the way, and run again",
    )
