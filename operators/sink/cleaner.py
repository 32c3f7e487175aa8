"""Remove or archive input files, once what became of them is published."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from dagflow.api.context import OperatorContext, RunPreparation
from dagflow.api.control import CommitListener, ControlOperator
from dagflow.api.ports import InputPort
from dagflow.api.properties import PartOfPath
from dagflow.errors import StorageError
from dagflow.metrics.names import CLEANED, CLEANED_NOT
from dagflow.storage.files import FileStat
from dagflow.storage.location import absolute, is_local, join, redacted
from dagflow.storage.originals import archive_version, remove_version, require_archive, settle
from operators.files.metadata import BlockMetadata
from operators.files.small_file_batch import SmallFileBatch

logger = logging.getLogger(__name__)


class SourceCleaner(ControlOperator, CommitListener):
    """Takes in the blocks that a reader has read, and removes or archives their files.

    Guarantee: a file is touched only after every window that has read a part of it is published and on disk, and
    only while it is the version that the reader has read, from its first byte to its last. One stays of which a part
    was left out, or that was too long to be read whole, or at whose end a record waits for its delimiter; with what
    was appended it goes when that is read too. After a crash what was not done is done, and what was done does no harm
    when it is done again.
    """

    action: Annotated[
        Literal["remove", "archive"], Field(description="what becomes of a file whose records are published")
    ]
    archive: Annotated[
        PartOfPath, Field(description="directory that files are moved to, with their paths below `below`")
    ] = ""
    below: Annotated[
        PartOfPath, Field(description="directory that archived paths are told from; all of the path if not given")
    ] = ""

    input = InputPort(BlockMetadata, tuple_batches=True)

    removes_input = True

    _context: OperatorContext

    def check_properties(self) -> None:
        """An archive needs a place.

        Raises:
            ValueError: It has none, has one in vain, or one that is not on a local disk.
        """
        if (self.action == "archive") != bool(self.archive):
            raise ValueError("give archive, a directory, together with action: archive, and only then")
        if not is_local(self.archive):
            raise ValueError("archive: only files of a local disk can be archived, to a directory of the same disk")
        self._archive = absolute(self.archive) if self.archive else ""
        self._below = join(absolute(self.below), "") if self.below else "/"

    def prepare(self, run: RunPreparation) -> None:
        """Make the archive, and refuse one that nothing can be moved to."""
        if self._archive:
            require_archive(self._archive)

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window."""
        self._context = context
        self._window_id = 0
        self._reports: dict[int, list[BlockMetadata | SmallFileBatch]] = {}
        # By URL the newest block, and how many bytes of its version are read: of files that are read in part, or
        # were left where they are, since what is appended to those may still come.
        self._covered: dict[str, tuple[BlockMetadata, int]] = {}

    def begin_window(self, window_id: int) -> None:
        """Called before the reports of a window arrive."""
        self._window_id = window_id
        self._first_ids: set[int] = set()

    @input.each
    def take(self, block: BlockMetadata | SmallFileBatch) -> None:
        """Note what was read; nothing is touched before the window is published.

        Raises:
            ValueError: Two readers report the same block.
        """
        if _first_id(block) in self._first_ids:
            # Of two readers one may have left a block out, and a file's blocks would add up too soon.
            raise ValueError("two readers report the same files; feed the cleaner from one of them, and none other")
        self._first_ids.add(_first_id(block))
        self._reports.setdefault(self._window_id, []).append(block)

    def committed(self, window_id: int) -> None:
        """Remove or archive what was read in the windows that are published.

        Raises:
            StorageError: The store refused; the next run tries again.
        """
        is_settled = False
        for window in sorted(window for window in self._reports if window <= window_id):
            # In the order in which they were planned: parallel readers report as they come.
            for report in sorted(self._reports[window], key=_first_id):
                for block in filter(self._completes, _blocks(report)):
                    if not is_settled:
                        # An original may only go when nothing, not even a power loss, can take what was made of it.
                        settle()
                        is_settled = True
                    self._clean(block)
            del self._reports[window]

    def _completes(self, block: BlockMetadata) -> bool:
        """Whether with this block all of its file's version is read."""
        known, covered = self._covered.pop(block.url, (block, 0))
        if known.version != block.version:
            # What was appended completes a file only if all that was there before is read, and not left out.
            is_tail = block.resumes and covered == known.version.size_bytes == block.start
            covered = block.start if is_tail else 0
        covered += block.size_bytes
        if covered == block.version.size_bytes:
            return True
        if not block.is_last:
            self._covered[block.url] = block, covered
        return False

    def _clean(self, block: BlockMetadata) -> None:
        reason = "its last record waits for its delimiter" if block.is_open else self._put_away(_stat_of(block))
        self._context.counters[CLEANED_NOT if reason else CLEANED] += 1
        if reason:
            self._covered[block.url] = block, block.version.size_bytes
            logger.warning("original left where it is url=%s: %s", redacted(block.url), reason)

    def _put_away(self, expected: FileStat) -> str:
        if self.action == "remove":
            return remove_version(expected)
        if expected.url.startswith(join(self._archive, "")):
            raise StorageError(
                "a file in the archive was read as input",
                url=redacted(expected.url),
                hint="put the archive where the splitter does not look",
            )
        return archive_version(expected, join(self._archive, expected.url.removeprefix(self._below)))

    def snapshot(self) -> dict[str, Any]:
        """What was read in windows that are not known to be published, and what is read in part."""
        return {"reports": self._reports, "covered": self._covered}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what snapshot gave."""
        self._covered = state["covered"]
        if "due" in state:
            # In checkpoints of before there is, instead of reports, one block of each file that was read in full.
            self._reports = {window: [_as_whole(each) for each in due] for window, due in state["due"].items()}
        else:
            self._reports = state["reports"]


def _first_id(report: BlockMetadata | SmallFileBatch) -> int:
    return report.first_id if isinstance(report, SmallFileBatch) else report.block_id


def _blocks(report: BlockMetadata | SmallFileBatch) -> Iterator[BlockMetadata]:
    """What was read; of a pack its empty files too."""
    return map(report.block, range(len(report))) if isinstance(report, SmallFileBatch) else iter((report,))


def _as_whole(report: BlockMetadata | SmallFileBatch) -> BlockMetadata | SmallFileBatch:
    """For the block of a file the one that has all of it."""
    return report if isinstance(report, SmallFileBatch) else replace(report, start=0, end=report.version.size_bytes)


def _stat_of(block: BlockMetadata) -> FileStat:
    return FileStat(block.url, block.version.size_bytes, block.version.mtime_ns, block.version.etag)
