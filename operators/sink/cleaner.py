"""Remove or archive input files, once their records are published."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from itertools import takewhile
from typing import Annotated, Any, Literal

from pydantic import Field

from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.control import CommitListener, ControlOperator
from dagflow.api.ports import InputPort
from dagflow.api.properties import OutputPath, PartOfPath
from dagflow.api.saved_values import RowTable
from dagflow.errors import MissingError, SourceChangedError, StorageError
from dagflow.frozen import frozen
from dagflow.metrics.names import CLEANED, CLEANED_NOT
from dagflow.storage.context import StorageContext
from dagflow.storage.files import FileStat
from dagflow.storage.location import absolute, is_local, join, parent, redacted
from operators.files.metadata import BlockMetadata, FileVersion
from operators.files.small_file_batch import SmallFileBatch

logger = logging.getLogger(__name__)

_DONE = {"remove": "removed", "archive": "archived"}


@frozen
class ReadBytes:
    """How much of a file is read, for files that are read in part or were left where they are.

    Attributes:
        version: The version that the newest block was cut from.
        size_bytes: How many bytes of that version are read, from its first byte on without a gap.
    """

    version: FileVersion
    size_bytes: int


@frozen
class WindowReports:
    """The reports of a window that is not known to be published."""

    window_id: int
    blocks: RowTable
    batches: list[dict[str, Any]]

    @classmethod
    def of(cls, window_id: int, reports: list[BlockMetadata | SmallFileBatch]) -> WindowReports:
        """Record the reports of a window, whose order does not matter."""
        blocks = sorted((each for each in reports if isinstance(each, BlockMetadata)), key=_first_id)
        batches = [each.to_json() for each in reports if isinstance(each, SmallFileBatch)]
        return cls(window_id, BlockMetadata.to_table(blocks), batches)

    def reports(self) -> list[BlockMetadata | SmallFileBatch]:
        return [*BlockMetadata.from_table(self.blocks), *map(SmallFileBatch.from_json, self.batches)]


@frozen
class CleanerState:
    """The state of SourceCleaner.

    Attributes:
        read_bytes: Files that may still become complete, by URL.
        replaced: The files that the URLs led to before, which may be found under other names.
    """

    reports: list[WindowReports]
    read_bytes: dict[str, ReadBytes]
    replaced: dict[str, ReadBytes] = field(default_factory=dict)


class SourceCleaner(ControlOperator, CommitListener):
    """Takes in the blocks that a reader has read, and removes or archives their files.

    Guarantee: a file is touched only after every window that has read a part of it is published and on disk, and
    only while it is the version that the reader has read, from its first byte to its last. A file stays if a part of
    it was left out, if it was too long to be read whole, or if a record at its end waits for its delimiter. A file
    that was appended to is removed or archived when the rest is read too. After a crash the work is finished; doing it
    twice does no harm.
    """

    action: Annotated[
        Literal["remove", "archive"], Field(description="what happens to a file whose records are published")
    ]
    archive: Annotated[
        OutputPath, Field(description="directory that files are moved to, with their paths below `below`")
    ] = ""
    below: Annotated[
        PartOfPath, Field(description="directory that archived paths are relative to; default: the whole path is kept")
    ] = ""

    input = InputPort(BlockMetadata, tuple_batches=True)

    removes_input = True
    state_type = CleanerState

    _context: OperatorContext

    def check_properties(self) -> None:
        if (self.action == "archive") != bool(self.archive):
            raise ValueError("give archive, a directory, together with action: archive, and only then")
        if not is_local(self.archive):
            raise ValueError("archive: only files of a local disk can be archived, to a directory of the same disk")
        self._archive = absolute(self.archive) if self.archive else ""
        self._below = join(absolute(self.below), "") if self.below else "/"

    def prepare(self, run: RunPreparation) -> None:
        if self._archive:
            run.storage.backend(self._archive).sources.require_archive(self._archive)

    def setup(self, context: OperatorContext) -> None:
        self._context = context
        self._window_id = 0
        self._reports: dict[int, list[BlockMetadata | SmallFileBatch]] = {}
        # The windows whose files an earlier run may have removed or archived.
        self._begun: frozenset[int] = frozenset()
        # A file that was left where it is may still become complete when more is appended to it.
        self._read_bytes: dict[str, ReadBytes] = {}
        self._replaced: dict[str, ReadBytes] = {}

    def begin_window(self, window_id: int) -> None:
        self._window_id = window_id
        self._first_ids: set[int] = set()

    @input.each
    def take(self, block: BlockMetadata | SmallFileBatch) -> None:
        """Note which blocks were read; no file is touched before the window is published."""
        if _first_id(block) in self._first_ids:
            # If two readers report a file, one may have left a block out, and the blocks would add up too soon.
            raise ValueError("two readers report the same files; feed the cleaner from one of them, and none other")
        self._first_ids.add(_first_id(block))
        self._reports.setdefault(self._window_id, []).append(block)

    def committed(self, window_id: int) -> None:
        is_durable = False
        self._other_names = OtherNames(self._context.storage, self._reports)
        # In order, and up to the first that waits: many may wait for one result, and committed() is called for each.
        for window in list(takewhile(lambda window: window <= window_id, self._reports)):
            # In the order in which they were planned: parallel readers report in any order.
            for report in sorted(self._reports[window], key=_first_id):
                for block in blocks_of(report):
                    if not self._completes(block):
                        if block.is_last:
                            self._count(block, "a part of it was left out, or not found again under another name")
                        continue
                    if not is_durable:
                        # A file may be removed only when not even a power loss can take the output that was made of it.
                        os.sync()
                        is_durable = True
                    self._clean(block, is_again=window in self._begun)
            del self._reports[window]

    def _completes(self, block: BlockMetadata) -> bool:
        """Whether this block is the last one of a file's version of which all is then read."""
        read_bytes = self._read_until(block)
        # Two splitters that find the same file each emit all of it: a sum would be complete too soon.
        if block.start <= read_bytes:
            read_bytes = max(read_bytes, block.end)
        if block.is_last:
            return read_bytes == block.version.size_bytes
        self._remember(block, read_bytes)
        return False

    def _read_until(self, block: BlockMetadata) -> int:
        """Bytes of a block's version that were read before, from the first on; -1 for incomplete content."""
        before = self._before(block)
        if before is not None and before.version == block.version:
            return before.size_bytes
        # An appended part completes a file only if all bytes before it were read, and none left out.
        read_bytes = block.continuation.content_start or (block.start if block.continuation.resumes else 0)
        is_whole = before is not None and before.size_bytes == before.version.size_bytes == read_bytes
        if block.continuation.content_start:
            return 0 if is_whole else -1
        return read_bytes if is_whole else 0

    def _before(self, block: BlockMetadata) -> ReadBytes | None:
        """Remove and return how much of a block's file was read before, also under another name."""
        if not block.continuation.moved_from:
            before = self._read_bytes.pop(block.url, None)
            if before is not None and before.version.file_id != block.version.file_id:
                self._replaced[block.url] = before
            return before
        for url in (block.url, block.continuation.moved_from):
            for known in (self._read_bytes, self._replaced):
                # A compressed file is another file than the one it was made from.
                if url in known and (
                    known[url].version.file_id == block.version.file_id or block.continuation.content_start
                ):
                    return known.pop(url)
        return None

    def _remember(self, block: BlockMetadata, read_bytes: int) -> None:
        """Record how much is read of a file that still exists and may become complete."""
        before = self._read_bytes.get(block.url)
        if before is not None and before.version.file_id != block.version.file_id:
            self._replaced[block.url] = before
        self._read_bytes[block.url] = ReadBytes(block.version, read_bytes)

    def _clean(self, block: BlockMetadata, *, is_again: bool) -> None:
        """Remove or archive a file; is_again says whether an earlier run may have done so."""
        try:
            reason = (
                "its last record waits for its delimiter"
                if block.continuation.is_open
                else self._put_away(FileStat.of(block.url, block.version))
            )
        except MissingError:
            is_renamed = self._other_names.has(block, has_grown=is_again)
            self._count(block, "it is gone, or has another name by now" if is_renamed or not is_again else "")
            if is_renamed:
                # What is appended to the file is found under that name, and completes it.
                self._remember(block, block.version.size_bytes)
            return
        except SourceChangedError as error:
            reason = error.message
            if is_again:
                # The file may have grown; a file that replaced it is read as a new one.
                self._remember(block, block.version.size_bytes)
                return
        self._count(block, reason)
        if reason:
            # The file is complete again when the bytes appended to it are read.
            self._remember(block, block.version.size_bytes)

    def _count(self, block: BlockMetadata, reason: str) -> None:
        """Count a file that was removed or archived, or that was left for a reason."""
        self._context.counters[CLEANED_NOT if reason else CLEANED] += 1
        if reason:
            logger.warning("source file not %s url=%s: %s", _DONE[self.action], redacted(block.url), reason)

    def _put_away(self, expected: FileStat) -> str:
        """Why a version was left although it exists; "" where it is removed or archived."""
        sources = self._context.storage.backend(expected.url).sources
        if self.action == "remove":
            return sources.remove_version(expected)
        if expected.url.startswith(join(self._archive, "")):
            raise StorageError(
                "a file in the archive was read as input",
                url=redacted(expected.url),
                hint="put the archive where the splitter does not look",
            )
        return sources.archive_version(expected, join(self._archive, expected.url.removeprefix(self._below)))

    def snapshot(self) -> CleanerState:
        reports = [WindowReports.of(window_id, reports) for window_id, reports in self._reports.items()]
        return CleanerState(reports, dict(self._read_bytes), dict(self._replaced))

    def restore(self, state: CleanerState) -> None:
        self._reports = {each.window_id: each.reports() for each in state.reports}
        self._begun = frozenset(self._reports)
        self._read_bytes = dict(state.read_bytes)
        self._replaced = dict(state.replaced)


def _first_id(report: BlockMetadata | SmallFileBatch) -> int:
    return report.first_id if isinstance(report, SmallFileBatch) else report.block_id


class OtherNames:
    """Finds versions that are gone from their URLs under other names in their directories; each is listed once."""

    def __init__(
        self, storage: StorageContext, reports: Mapping[int, Sequence[BlockMetadata | SmallFileBatch]]
    ) -> None:
        self._storage = storage
        self._reports = reports
        self._names: dict[str, Mapping[int, str]] = {}

    def has(self, block: BlockMetadata, *, has_grown: bool) -> bool:
        """Whether a block's version is there under another name; with has_grown only where it was appended to.

        An unchanged version may be the target of a link that was removed, or have another name for other reasons.
        """
        if not block.version.file_id:
            return False
        backend, directory = self._storage.backend(block.url), parent(block.url)
        if directory not in self._names:
            self._names[directory] = backend.sources.names_of(directory, self._wanted)
        name = self._names[directory].get(block.version.file_id)
        if name is None:
            return False
        try:
            # The inode number of a removed file may be that of a new one now.
            backend.files.require_version(
                replace(FileStat.of(name, block.version), fingerprint=block.continuation.fingerprint)
            )
            return not has_grown or backend.files.stat(name).size_bytes > block.version.size_bytes
        except StorageError:
            return False

    @cached_property
    def _wanted(self) -> frozenset[int]:
        blocks = (block for reports in self._reports.values() for report in reports for block in blocks_of(report))
        return frozenset(block.version.file_id for block in blocks)


def blocks_of(report: BlockMetadata | SmallFileBatch) -> Iterator[BlockMetadata]:
    """The blocks of reports, including those of empty files in small-file batches."""
    return map(report.block, range(len(report))) if isinstance(report, SmallFileBatch) else iter((report,))
