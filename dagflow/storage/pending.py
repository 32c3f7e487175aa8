"""Output that readers do not see before its window is committed.

A task opens pending files and sends the results of their close() to the driver, which publishes them after the journal
has their names. A pending file whose name reaches no driver is never published, so tasks of dead drivers do no harm.
"""

from __future__ import annotations

import functools
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import field
from typing import Any, Literal

from typing_extensions import Buffer

from dagflow.errors import LostOutputError, StorageError
from dagflow.frozen import frozen
from dagflow.storage.fingerprint import updated_crc32
from dagflow.storage.location import join, name_of, parent, redacted

PENDING_DIRECTORY = ".dagflow-pending"
Durability = Literal["process", "power"]
"""The failures that a file survives: "process" the end of every process; "power" also a power loss, at the price of
waiting for the disk. Object stores always provide the latter."""


@frozen
class PendingFile:
    """A complete file that waits for its window's commit.

    Attributes:
        final_url: The name under which it will be published.
        pending_url: Where its bytes are until then; for an unfinished upload a name that no store shows.
        records: How many records its writer counted.
        crc32: Checksum of its bytes, or None where none was requested.
        token: Text that an object store needs to complete the upload; "" elsewhere.
        facts: Facts for the transaction that makes it visible; mostly None for a file that is visible by its name.
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


def output_of(file: PendingFile, outputs: Iterable[str]) -> str:
    """The output that a file is part of: the operator with a target, or the location that it is published below."""
    return file.target or max((url for url in outputs if file.final_url.startswith(join(url, ""))), key=len, default="")


@frozen
class HeldFile:
    """A pending file of a committed window that a later window takes in; see api.control.Grouper.

    Attributes:
        window_id: The window that wrote it.
        held_ms: When that window was committed, in milliseconds since 1970.
        file: The file; its facts include `held`.
        since_window: The oldest window whose results it may contain, where these span several windows; 0 where it is
            only of its own window.
    """

    window_id: int
    held_ms: int
    file: PendingFile
    since_window: int = 0


class PendingWriter(ABC):
    """A pending file that is being written; used within one task. Methods raise StorageError where the store fails."""

    def __init__(self, final_url: str, *, checksum: bool) -> None:
        self._final = final_url
        self._crc32 = 0 if checksum else None
        self._size_bytes = 0

    def _count(self, view: memoryview) -> None:
        self._size_bytes += len(view)
        if self._crc32 is not None:
            self._crc32 = updated_crc32(view, self._crc32)

    def _written(self, pending_url: str, records: int, token: str = "") -> PendingFile:
        return PendingFile(self._final, pending_url, self._size_bytes, records, self._crc32, token)

    @abstractmethod
    def write(self, data: Buffer) -> None:
        """Append bytes; the buffer may be reused as soon as this returns."""

    def end(self) -> int:
        """Send the rest without waiting for it; nothing may be written afterwards, and close() waits.

        Returns:
            How many bytes are held in memory at most until close(); 0 where close() does all the work.
        """
        return 0

    @abstractmethod
    def close(self, *, records: int) -> PendingFile:
        """Complete the file, which stays invisible."""

    @abstractmethod
    def abandon(self) -> None:
        """Remove the written bytes; does nothing after close() or in a second call, and never raises."""


class PendingFiles(ABC):
    """Keeps output of one kind of store invisible, and publishes it. URLs are absolute, see location.absolute.

    Each method raises StorageError where the store fails or refuses.
    """

    @abstractmethod
    def open(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> PendingWriter:
        """Start a file that readers do not see.

        Args:
            final_url: The name under which it will be published.
            tag: The driver's result of pending_tag().
        """

    def open_held(
        self, final_url: str, *, tag: str, durability: Durability = "process", checksum: bool = False
    ) -> PendingWriter:
        """Start a file that any process reads at its pending_url, and that is discarded or swept, but not published.

        It is kept beside its final name. Stores whose pending files cannot be read keep it in another form.
        """
        return self.open(final_url, tag=tag, durability=durability, checksum=checksum)

    @abstractmethod
    def publish(self, pending: PendingFile, durability: Durability = "process") -> None:
        """Make a pending file visible under its final name, at once and as a whole; doing it again does nothing.

        Raises:
            StorageError: The final name has another file, which is left unchanged; or the pending file is lost.
        """

    @abstractmethod
    def replace(self, pending: PendingFile, durability: Durability = "process") -> None:
        """Make a pending file visible under its final name, as publish() does, but replacing any file there.

        Readers see the old file or the new one, if the store has a move or an upload that
        replaces; otherwise the name may be missing for a moment.

        Raises:
            StorageError: The pending file is lost, or the store refused.
        """

    @abstractmethod
    def is_whole(self, pending: PendingFile) -> bool:
        """Whether replace() can succeed: the file is complete and waits, or already has its final name."""

    def discard(self, pending: PendingFile) -> None:
        """Remove a pending file that will not be published; a missing one is no error."""
        self.remove(pending.pending_url)

    def discard_rivals(self, pending: PendingFile) -> None:
        """End the unfinished uploads that dead attempts left for the final name of a published file.

        To be called after publishing a window that was replayed or whose tasks were retried. Only stores whose
        unfinished uploads do not show their driver need it; elsewhere sweep() finds such leftovers.
        """
        return

    def sweep(
        self,
        root_url: str,
        *,
        owner: str,
        before_epoch: int,
        require_right: Callable[[], None],
        keep: Collection[str] = (),
    ) -> int:
        """Remove the pending files that earlier drivers of a checkpoint left below an output directory, and count them.

        Other checkpoints' pending files are not touched.

        Args:
            root_url: The output directory; nothing happens where it does not exist.
            owner: The owner that was given to pending_tag().
            before_epoch: The current driver's epoch: only leftovers of earlier epochs are removed.
            require_right: Called before anything is removed that may be a later driver's; raises where a later driver
                has taken over.
            keep: pending_url of the files that a committed window still has to publish.
        """
        # By names, which are unique: a store may have several URLs, and a link may lead to a directory.
        kept = set(map(name_of, keep))
        removed = 0
        for url in self.pending_urls(root_url):
            if is_earlier_tag(name_of(parent(url)), owner, before_epoch) and name_of(url) not in kept:
                self.remove(url)
                removed += 1
        return removed

    @abstractmethod
    def pending_urls(self, root_url: str) -> Iterator[str]:
        """The files in the hidden directories below a directory, which may not exist."""

    @abstractmethod
    def remove(self, pending_url: str) -> None:
        """Remove a file in a hidden directory, and the directory if it is empty; a missing file is no error."""

    def sync_names(self, urls: Iterable[str]) -> None:
        """Make published, replaced or removed names survive a power loss, where that takes a further step."""
        return


def pending_tag(owner: str, epoch: int) -> str:
    """The directory name that separates the pending files of one driver from all others.

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


REQUESTS = 32
"""Concurrent requests of one process: that many small files in one latency."""


def request_threads() -> ThreadPoolExecutor:
    """Threads that wait for requests, so that several run at a time; do not use them from one of them."""
    return _threads_of(os.getpid())


@functools.cache
def _threads_of(process: int) -> ThreadPoolExecutor:
    # A forked process has none of its parent's threads, and gets its own.
    return ThreadPoolExecutor(REQUESTS, thread_name_prefix=f"requests-{process}")


@frozen
class FileFacts:
    """Facts of a data file; its length and its number of records are those of its PendingFile.

    Attributes:
        operator: The operator whose target shows the file, see TransactionalSink; "" where it is visible by its name.
        schema: The columns in the file, as text that the target understands.
        partition: The values of the table's partition columns by name, as text; None for a missing value.
        nulls: The number of missing values, by column.
        least: The smallest value, or one below it, as a JSON value, by column; only where it is known.
        greatest: The largest value, or one above it, by column.
        causes: The position of the first record that gave a column of the file its form, as `file:offset`, by column;
            only for columns that the table was not known to have, or to have in that type.
        keys: Columns by whose values rows of the file replace rows of the target; empty where rows are added.
        held: What a later window needs to take the file in, as a JSON value; None for a file that its own window
            publishes. See api.control.Grouper.
        decided: The text of the target's decision about the columns of the window, in the first file of a window that
            changes them; see TargetDecision.
        has_blocks: Whether the file says of which block each of its rows is.
        proposal: What the target decides about before the window is committed; the journal does not keep it.
    """

    operator: str
    schema: str = ""
    partition: dict[str, str | None] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)
    least: dict[str, Any] = field(default_factory=dict)
    greatest: dict[str, Any] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    held: Any = None
    decided: str = ""
    has_blocks: bool = False
    proposal: Any = None
