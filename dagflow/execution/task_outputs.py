"""The output files of a task: open while it runs, then pending until its window is committed."""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from operator import index

from typing_extensions import Buffer

from dagflow.api.sources import FileSources
from dagflow.errors import StorageError
from dagflow.execution.failures import BrokenContractError
from dagflow.frozen import frozen
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, redacted
from dagflow.storage.pending import Durability, FileFacts, PendingFile, PendingWriter

ENDING_BYTES = 64 << 20
ENDING_FILES = 32
"""Ended files of a task whose last bytes are still being sent to a remote store, at most: bounds memory."""


@frozen
class OutputBounds:
    """Limits where a run publishes that must leave everything else unchanged, such as a try-out or a test.

    Attributes:
        directory: An absolute path, below which all files are published.
        run: What kind of run it is, as the subject of a sentence.
        hint: What to do about an operator that publishes elsewhere.
    """

    directory: str
    run: str
    hint: str

    def include(self, url: str) -> bool:
        return f"{absolute(url)}/".startswith(f"{self.directory}/")

    def require(self, url: str) -> None:
        if not self.include(url):
            # In brackets: the current input is named behind it.
            raise BrokenContractError(
                f"opens {redacted(url)} ({self.run} publishes into {self.directory} alone)", hint=self.hint
            )


class TaskOutputFile:
    """A file of a task that waits for its window's commit."""

    def __init__(self, outputs: TaskOutputs, writer: PendingWriter) -> None:
        self._outputs = outputs
        self._writer = writer

    def write(self, data: Buffer) -> None:
        self._writer.write(data)

    def close(self, *, records: int, sources: FileSources | None = None, facts: FileFacts | None = None) -> None:
        """End the file, and report it with the task's result."""
        self._outputs.end(self._writer, index(records), sources, facts)


class TaskOutputs:
    """The files that a task's operators open.

    Every pending name is unique to one attempt: Spark may run a task twice at the same time, and a task whose driver is
    gone may continue to write.

    Attributes:
        sources: The blocks of each file that take_finished() has returned last.
    """

    def __init__(
        self, storage: StorageContext, tag: str, durability: Durability, bounds: OutputBounds | None = None
    ) -> None:
        self._storage = storage
        self._tag = tag
        self._durability = durability
        self._bounds = bounds
        self._open: list[PendingWriter] = []
        self._url_by_unended: dict[PendingWriter, str] = {}
        self._ending: deque[tuple[PendingWriter, int, int, FileFacts | None]] = deque()
        self._sources: list[FileSources | None] = []
        self.sources: tuple[FileSources | None, ...] = ()
        self._ending_bytes = 0
        self._finished: list[PendingFile] = []

    def open(self, url: str) -> TaskOutputFile:
        """Start the file that will be published as url."""
        self._require_allowed(url)
        # The checksum takes 0.02 s of a core per GiB; the manifest holds it.
        writer = self._storage.open_pending(url, tag=self._tag, durability=self._durability, checksum=True)
        return self._opened(url, writer)

    def hold(self, url: str) -> TaskOutputFile:
        """Start a file that a later window reads, kept beside url; its operator knows the checksums of its parts."""
        self._require_allowed(url)
        writer = self._storage.open_held(url, tag=self._tag, durability=self._durability)
        return self._opened(url, writer)

    def _require_allowed(self, url: str) -> None:
        # A claimed location is checked before the run; an operator that claims nothing is checked here.
        if self._bounds is not None:
            self._bounds.require(url)

    def _opened(self, url: str, writer: PendingWriter) -> TaskOutputFile:
        self._open.append(writer)
        self._url_by_unended[writer] = url
        return TaskOutputFile(self, writer)

    def end(
        self, writer: PendingWriter, records: int, sources: FileSources | None = None, facts: FileFacts | None = None
    ) -> None:
        """Complete a file; on a remote store this continues while the next file is written."""
        self._url_by_unended.pop(writer, None)
        held_bytes = writer.end()
        self._ending.append((writer, records, held_bytes, facts))
        self._sources.append(sources)
        self._ending_bytes += held_bytes
        while self._ending and (
            not self._ending[0][2] or self._ending_bytes > ENDING_BYTES or len(self._ending) > ENDING_FILES
        ):
            self._complete_oldest()

    def _complete_oldest(self) -> None:
        writer, records, held_bytes, facts = self._ending.popleft()
        self._ending_bytes -= held_bytes
        file = writer.close(records=records)
        self._finished.append(file if facts is None else replace(file, facts=facts))

    def take_finished(self) -> tuple[PendingFile, ...]:
        """The files that were ended since the last call, in the order of their ends."""
        if self._url_by_unended:
            url = next(iter(self._url_by_unended.values()))
            hint = "an operator closes the files that it has opened in end_window() at the latest"
            raise StorageError("was opened and never closed; its content would be lost", url=redacted(url), hint=hint)
        while self._ending:
            self._complete_oldest()
        finished, self.sources = tuple(self._finished), tuple(self._sources)
        self._finished.clear()
        self._sources.clear()
        self._open.clear()
        return finished

    def abandon(self) -> None:
        """Remove what was written; for tasks that failed."""
        for writer in self._open:
            writer.abandon()
