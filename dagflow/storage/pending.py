"""Output that nobody sees before its window is committed.

A task opens pending files and hands what their close() returns to the driver; the driver publishes them after
the journal holds their names. Who is told no name publishes nothing, so tasks of dead drivers do no harm.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal, Protocol, runtime_checkable

from typing_extensions import Buffer

from dagflow.errors import StorageError
from dagflow.storage.local_disk import translated
from dagflow.storage.location import absolute, is_local, redacted

PENDING_DIRECTORY = ".dagflow-pending"
Durability = Literal["process", "power"]


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
    """

    final_url: str
    pending_url: str
    size_bytes: int
    records: int
    crc32: int | None = None
    token: str = ""

    def to_json(self) -> dict[str, Any]:
        """The file as JSON values."""
        return asdict(self)

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> PendingFile:
        """The file that to_json() described."""
        return cls(**value)


class PendingWriter(Protocol):
    """A pending file that is being written; lives and ends in one task."""

    def write(self, data: Buffer) -> None:
        """Append bytes; the buffer may be reused as soon as this returns.

        Raises:
            StorageError: The store refused them.
        """

    def close(self, *, records: int) -> PendingFile:
        """Complete the file, still unseen.

        Args:
            records: How many records it holds.

        Raises:
            StorageError: The store refused.
        """

    def abandon(self) -> None:
        """Throw the file away; does nothing after close() or a second time, and raises nothing."""


@runtime_checkable
class LateWriter(Protocol):
    """A pending writer whose bytes go on travelling when the last one is written."""

    def end(self) -> int:
        """Send what is left, and do not wait for it; nothing may be written afterwards, and close() waits.

        Returns:
            How many bytes are held in memory at most until close().

        Raises:
            StorageError: The store refused what was sent before.
        """


def pending_tag(owner: str, epoch: int) -> str:
    """The directory name that keeps the pending files of one driver's life apart from all others.

    Args:
        owner: A name that no other checkpoint has: the journal's app_uuid.
        epoch: The driver's epoch.
    """
    return f"{owner}-{epoch:08d}"


def open_pending(
    final_url: str, *, directory_tag: str, durability: Durability = "process", checksum: bool = False
) -> PendingWriter:
    """Begin a file that nobody sees.

    Args:
        final_url: The name under which it will be published.
        directory_tag: What pending_tag() gave the driver.
        durability: "process" survives the death of every process; "power" also a power loss, at the price of
            waiting for the disk. Object stores always do the latter.
        checksum: Whether to compute crc32, which is cheap where isal is installed (checksums.py).

    Raises:
        StorageError: The store refused.
    """
    final_url = absolute(final_url)
    if is_local(final_url):
        from dagflow.storage.pending_local import LocalPendingWriter

        return LocalPendingWriter(final_url, directory_tag, durability, checksum)
    from dagflow.storage import pending_remote

    return pending_remote.open_pending(final_url, directory_tag, checksum)


def publish(pending: PendingFile, *, durability: Durability = "process") -> None:
    """Make a pending file visible under its final name, at once and as a whole; doing it again does nothing.

    Raises:
        StorageError: The final name holds something else, which is left as it is; or the pending file is lost.
    """
    if is_local(pending.final_url):
        from dagflow.storage import pending_local

        return pending_local.publish(pending, durability)
    from dagflow.storage import pending_remote

    return pending_remote.publish(pending)


def replace(pending: PendingFile, *, durability: Durability = "process") -> None:
    """Make a pending file visible under its final name in the place of what is there, at once and as a whole.

    Doing it again does nothing. Readers see the old file or the new one, where the store has a move or an
    upload that replaces; elsewhere the name may be missing for a moment.

    Raises:
        StorageError: The pending file is lost, or the store refused.
    """
    if is_local(pending.final_url):
        from dagflow.storage import pending_local

        return pending_local.replace(pending, durability)
    from dagflow.storage import pending_remote

    return pending_remote.replace(pending)


def is_whole(pending: PendingFile) -> bool:
    """Whether replace() will succeed as far as the file goes: it is complete and waits, or is in its place already.

    Raises:
        StorageError: The store refused.
    """
    if is_local(pending.final_url):
        from dagflow.storage import pending_local

        return pending_local.is_whole(pending)
    from dagflow.storage import pending_remote

    return pending_remote.is_whole(pending)


def publish_all(files: Sequence[PendingFile], *, durability: Durability = "process") -> None:
    """Publish files in any order; those on remote stores several at a time, because each waits for an answer.

    Raises:
        StorageError: As publish() says, of one of them; what became of the others is as if the process had died.
    """
    for_all(lambda file: publish(file, durability=durability), files)


def discard_all_rivals(files: Sequence[PendingFile]) -> None:
    """Do discard_rivals() for all files.

    Raises:
        StorageError: The store refused.
    """
    for_all(discard_rivals, files)


def for_all(act: Callable[[PendingFile], None], files: Sequence[PendingFile]) -> None:
    """Do something with each file; with those on remote stores several at a time.

    Raises:
        StorageError: A store refused; the other files may have been done.
    """
    for file in files:
        if is_local(file.final_url):
            act(file)
    if remote := [file for file in files if not is_local(file.final_url)]:
        from dagflow.storage import pending_remote

        pending_remote.for_all(act, remote)


def discard(pending: PendingFile) -> None:
    """Throw a pending file away that will not be published; one that is gone is no error.

    Raises:
        StorageError: The store refused.
    """
    if is_local(pending.final_url):
        from dagflow.storage import pending_local

        return pending_local.discard(pending)
    from dagflow.storage import pending_remote

    return pending_remote.discard(pending)


def discard_rivals(pending: PendingFile) -> None:
    """End the unfinished uploads that dead attempts left for the final name of a published file.

    To be called after publishing a window that was replayed or whose tasks were retried. Only S3 needs it,
    because an upload does not show whose it is; elsewhere sweep() finds such leftovers.

    Raises:
        StorageError: The store refused.
    """
    if not is_local(pending.final_url):
        from dagflow.storage import pending_remote

        pending_remote.discard_rivals(pending)


def remove(url: str) -> None:
    """Remove a published file.

    Raises:
        MissingError: There is none; not every object store can tell.
        StorageError: The store refused.
    """
    url = absolute(url)
    if is_local(url):
        with translated(url, "remove"):
            return os.unlink(url)
    from dagflow.storage import pending_remote

    return pending_remote.remove(url)


def sweep(
    root_url: str, *, owner: str, before_epoch: int, require_right: Callable[[], None], keep: Collection[str] = ()
) -> int:
    """Remove the pending files that earlier drivers of a checkpoint left below an output directory.

    Other checkpoints' pending files are not touched. An unfinished S3 upload does not show whose it is: it is removed
    where the checkpoint has published its name already, or when it is a week old.

    Args:
        root_url: The output directory; nothing happens where there is none.
        owner: What pending_tag() was given.
        before_epoch: The current driver's epoch: only what earlier ones left is removed.
        require_right: Called before anything is removed that may be a later driver's; raises where one has taken over.
        keep: pending_url of the files that a committed window still has to publish.

    Returns:
        How many files were removed.

    Raises:
        StorageError: The store refused.
    """
    root_url = absolute(root_url)
    if is_local(root_url):
        from dagflow.storage import pending_local

        return pending_local.sweep(root_url, owner, before_epoch, keep)
    from dagflow.storage import pending_remote

    return pending_remote.sweep(root_url, owner, before_epoch, require_right, keep)


def lost_output(pending: PendingFile) -> StorageError:
    """The error for a committed file that is neither pending nor published."""
    return StorageError(
        f"output was lost: neither this file nor its pending file {redacted(pending.pending_url)} exists",
        url=redacted(pending.final_url),
        hint="somebody removed it after its window was committed; put it back, or start over with --fresh",
    )


def conflict(pending: PendingFile) -> StorageError:
    """The error for a committed file whose name holds something else."""
    return StorageError(
        f"the name is taken by another file than {redacted(pending.pending_url)} ({pending.size_bytes} bytes)",
        url=redacted(pending.final_url),
        hint="move the file that is in the way, and run again",
    )
