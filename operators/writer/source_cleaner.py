"""Remove or archive input files, once what became of them is published."""

from __future__ import annotations

import logging
from typing import Annotated, Any, Literal

from pydantic import Field

from dagflow.api.context import OperatorContext
from dagflow.api.operator import ControlOperator
from dagflow.api.ports import InputPort
from dagflow.errors import StorageError
from dagflow.metrics.names import CLEANED, CLEANED_NOT
from dagflow.storage.files import FileStat
from dagflow.storage.location import absolute, join, redacted
from dagflow.storage.originals import archive_version, remove_version, settle
from operators.metadata import BlockMetadata
from operators.pack import BlockPack

logger = logging.getLogger(__name__)


class SourceCleaner(ControlOperator):
    """Takes in the blocks that a reader has read, and removes or archives their files.

    Guarantee: a file is touched only after every window that has read a part of it is published and on disk, and
    only while it is the version that was read; one that was left out stays, and one at whose end a record waits
    for its delimiter. After a crash what was not done is done, and what was done does no harm when it is done again.
    """

    action: Annotated[
        Literal["remove", "archive"], Field(description="what becomes of a file whose records are published")
    ]
    archive: Annotated[str, Field(description="directory that files are moved to, with their paths below `below`")] = ""
    below: Annotated[
        str, Field(description="directory that archived paths are told from; all of the path if not given")
    ] = ""

    input = InputPort(BlockMetadata, bundles=True)

    _context: OperatorContext

    def check_properties(self) -> None:
        """An archive needs a place.

        Raises:
            ValueError: It has none, or has one in vain.
        """
        if (self.action == "archive") != bool(self.archive):
            raise ValueError("give archive, a directory, together with action: archive, and only then")
        self._archive = absolute(self.archive) if self.archive else ""
        self._below = join(absolute(self.below), "") if self.below else "/"

    def setup(self, context: OperatorContext) -> None:
        """Called once before the first window."""
        self._context = context
        self._window_id = 0
        self._due: dict[int, list[BlockMetadata | BlockPack]] = {}
        self._covered: dict[str, tuple[BlockMetadata, int]] = {}

    def begin_window(self, window_id: int) -> None:
        """Called before the reports of a window arrive."""
        self._window_id = window_id

    @input.each
    def take(self, block: BlockMetadata | BlockPack) -> None:
        """Note what was read; nothing is touched before the window is published."""
        if isinstance(block, BlockPack):
            self._due.setdefault(self._window_id, []).append(block)
            return
        known, covered = self._covered.pop(block.url, (block, 0))
        covered = block.size_bytes + (covered if known.version == block.version else 0)
        if covered == block.version.size_bytes:
            self._due.setdefault(self._window_id, []).append(block)
        else:
            self._covered[block.url] = block, covered

    def committed(self, window_id: int) -> None:
        """Remove or archive what was read in the windows that are published.

        Raises:
            StorageError: The store refused; the next run tries again.
        """
        due = [each for window in sorted(self._due) if window <= window_id for each in self._due[window]]
        if not due:
            return
        # An original may only go when nothing, not even a power loss, can take what was made of it.
        settle()
        for each in due:
            for expected in _versions(each):
                self._clean(expected, each.is_open)
        self._due = {window: files for window, files in self._due.items() if window > window_id}

    def _clean(self, expected: FileStat, has_waiting: bool) -> None:
        if has_waiting:
            reason = "its last record waits for its delimiter"
        elif self.action == "remove":
            reason = remove_version(expected)
        else:
            if expected.url.startswith(join(self._archive, "")):
                raise StorageError(
                    "a file in the archive was read as input",
                    url=redacted(expected.url),
                    hint="put the archive where the splitter does not look",
                )
            reason = archive_version(expected, join(self._archive, expected.url.removeprefix(self._below)))
        self._context.counters[CLEANED_NOT if reason else CLEANED] += 1
        if reason:
            logger.warning("original left where it is url=%s: %s", redacted(expected.url), reason)

    def snapshot(self) -> dict[str, Any]:
        """What is to be done for windows that are not known to be published, and what is read in part."""
        return {"due": self._due, "covered": self._covered}

    def restore(self, state: dict[str, Any]) -> None:
        """Take back what snapshot gave."""
        self._due, self._covered = state["due"], state["covered"]


def _versions(each: BlockMetadata | BlockPack) -> list[FileStat]:
    blocks = [each.block(index) for index in range(len(each))] if isinstance(each, BlockPack) else [each]
    return [
        FileStat(block.url, block.version.size_bytes, block.version.mtime_ns, block.version.etag) for block in blocks
    ]
