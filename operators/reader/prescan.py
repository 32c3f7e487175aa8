"""Pre-scans of files whose blocks cannot be read independently: they find the state in which each block begins.

For blocks of a compressed file, the state is their part of the file's content.
"""

from __future__ import annotations

import itertools
import json
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from dagflow.api.capabilities import PreScan
from dagflow.api.ports import unbatched
from dagflow.errors import CredentialsError, MissingError, SourceChangedError, StorageError, TransientStorageError
from dagflow.frozen import frozen
from dagflow.storage.context import StorageContext
from operators.files.metadata import BlockMetadata, FileVersion
from operators.files.small_file_batch import SmallFileBatch
from operators.reader.block_files import BlockFiles
from operators.reader.block_processor import OnError, OnVanished
from operators.reader.byte_source import ByteSource
from operators.reader.compression.recognition import CompressionSetting, expected_compression
from operators.reader.compression.splitting import CutProgress, assign_range, chains_of
from operators.reader.compression.stream import CorruptArchiveError
from operators.reader.content import ContentReader, cutting_compression, resumed_block
from operators.reader.formats.base import UNKNOWN_STATE, ByteAccounting, Inferring, RecordFormat, scanned_before
from operators.reader.path_values import inferred_types

logger = logging.getLogger(__name__)

MOST_FILES = 64
"""Number of files without records that are scanned together, on the way to one that has some."""


UNREAD = "unread"
"""The result for a block that could not be read."""


@frozen
class FileEntryState:
    """The state in which the next block of a file begins."""

    url: str
    version: FileVersion
    entry_state: int = 0
    cut: CutProgress | None = None  # for compressed files that are cut, whose blocks have no entry state


@frozen
class PreScanState:
    """The state of a pre-scan after earlier windows.

    Attributes:
        files: Files whose next blocks come in a later window.
        decision: The decision of the first file with records for all files, in the terms of the format.
        path_types: The types of the columns from paths, by name, as the first files decided.
    """

    files: tuple[FileEntryState, ...]
    decision: dict[str, Any] | None = None
    path_types: dict[str, str] | None = None


@frozen
class DecidingFile:
    """A file that may decide how all files are read."""

    block: BlockMetadata


class BlockPreScan(PreScan):
    """Scans blocks, and computes from the results the state in which each next block begins.

    With the policy "skip", the blocks behind one that cannot be scanned are left out when they are read.
    """

    state_type = PreScanState

    def __init__(
        self,
        format: RecordFormat,
        setting: CompressionSetting = "auto",
        on_error: OnError = "fail",
        on_vanished: OnVanished = "skip",
        *,
        infers_paths: bool = False,
    ) -> None:
        self._format = format
        self._with_state = scanned_before(format)
        self._setting = setting
        self._on_error = on_error
        self._on_vanished = on_vanished
        self._opened: BlockFiles | None = None
        self._files: dict[tuple[str, FileVersion], FileEntryState] = {}
        self._decision: dict[str, Any] | None = None
        self._infers_paths = infers_paths
        self._path_types: dict[str, str] | None = None

    def decide(self, items: Sequence[Any], scan: Callable[[Sequence[Any]], list[Any]]) -> None:
        """Let the first file that has records decide, if the format asks for that and none has decided before."""
        if self._infers_paths and self._path_types is None:
            self._path_types = inferred_types(block.url for block in unbatched(items))
            if self._path_types is not None:
                logger.info("columns of paths inferred: %s", json.dumps(self._path_types))
        format = self._format
        if not isinstance(format, Inferring) or not format.needs_decision or self._decision is not None:
            return
        files, count = _whole_files(items), 1
        while asked := list(itertools.islice(files, count)):
            decision = next((result for result in scan(asked) if result is not None), None)
            if decision is not None:
                self._decision = decision
                logger.info("columns inferred: %s", json.dumps(decision))
                return
            count = min(2 * count, MOST_FILES)

    def take_back(self, item: Any) -> bool:
        """Forget the state of a file: a block that was planned has its own entry state.

        Blocks of compressed files keep the part of the content that they were given.
        """
        if not isinstance(item, BlockMetadata) or expected_compression(item, self._setting):
            return False
        self._files.pop((item.url, item.version), None)
        return True

    def needs_scan(self, item: Any) -> bool:
        """Whether a tuple must be scanned before its file can be read; a small-file batch holds whole files."""
        if not isinstance(item, BlockMetadata):
            return False
        if not expected_compression(item, self._setting):
            return self._with_state is not None and self._with_state.needs_prescan and not item.is_last
        if cutting_compression(item, self._setting, self._format) is None:
            return False
        file = self._files.get((item.url, item.version))
        if file is None and item.continuation.is_open:
            return False
        return file is None or file.cut is None or not file.cut.is_over

    def scan(self, item: BlockMetadata | DecidingFile, storage: StorageContext) -> Any:
        """Scan a block: the result of its format or compression; UNREAD where it cannot be read.

        The result for a deciding file is its decision; None where it cannot be read.
        """
        if self._opened is None:
            self._opened = BlockFiles(storage)
        block = item.block if isinstance(item, DecidingFile) else item
        try:
            file = self._opened.open(block)
            return self._decided(file, block) if isinstance(item, DecidingFile) else self._scanned(file, block)
        except (TransientStorageError, CredentialsError):
            raise
        except (SourceChangedError, MissingError):
            if self._on_vanished == "fail":
                raise
            return None if isinstance(item, DecidingFile) else UNREAD
        except (StorageError, CorruptArchiveError) as error:
            if self._on_error == "fail" or (isinstance(error, CorruptArchiveError) and block is item):
                raise
            return None if isinstance(item, DecidingFile) else UNREAD

    def _decided(self, source: ByteSource, block: BlockMetadata) -> Any:
        assert isinstance(self._format, Inferring)
        content = ContentReader(self._format, self._setting)
        return self._format.decision(content.read(source, block, ByteAccounting(block.url)))

    def _scanned(self, source: ByteSource, block: BlockMetadata) -> Any:
        compression = cutting_compression(block, self._setting, self._format)
        if compression is not None:
            return chains_of(source, block, compression)
        if block.begins_at_cut:
            block = replace(block, start=0)
        assert self._with_state is not None
        return self._with_state.prescan(source, resumed_block(self._format, source, block))

    def teardown(self) -> None:
        if self._opened is not None:
            self._opened.close()

    def resolve(self, items: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """The tuples with the states in which they begin, by the results of the blocks before each."""
        return [self._resolved(item, result) for item, result in zip(items, results, strict=True)]

    def _resolved(self, item: Any, result: Any) -> Any:
        if not isinstance(item, BlockMetadata):
            return item
        key = (item.url, item.version)
        file = FileEntryState(item.url, item.version, item.entry_state)
        if item.start:
            file = self._files.pop(key, file)
        compression = cutting_compression(item, self._setting, self._format)
        if compression is not None and item.start and file.cut is None:
            # The first block of a file that may grow, or of a tail, has all records.
            return item
        if compression is not None:
            chains = None if result == UNREAD else result
            block, cut = assign_range(item, chains, file.cut or CutProgress())
            if not item.is_last:
                self._files[key] = replace(file, cut=cut)
            return block
        if self._with_state is not None and not self._with_state.needs_prescan:
            is_behind = item.begins_at_cut or (item.start and not expected_compression(item, self._setting))
            return replace(item, entry_state=UNKNOWN_STATE) if is_behind else item
        state = file.entry_state
        if item.begins_at_cut:
            # The blocks before it were of another version: the scan began with the file, and a reader scans it anew.
            if result is not None and result != UNREAD:
                self._files[key] = replace(file, entry_state=self._exit_state(0, result), cut=None)
            elif not item.is_last:
                self._files[key] = replace(file, entry_state=UNKNOWN_STATE, cut=None)
            return replace(item, entry_state=UNKNOWN_STATE) if self._with_state is not None else item
        if result == UNREAD or (state == UNKNOWN_STATE and not item.is_last):
            self._files[key] = replace(file, entry_state=UNKNOWN_STATE, cut=None)
        elif result is not None:
            self._files[key] = replace(file, entry_state=self._exit_state(state, result), cut=None)
        return replace(item, entry_state=state) if state != item.entry_state else item

    def _exit_state(self, state: int, result: Any) -> int:
        return 0 if self._with_state is None else self._with_state.exit_state(state, result)

    def snapshot(self) -> PreScanState | None:
        """The states of files whose next blocks come in a later window, and the decisions; None if all are empty."""
        if not (self._files or self._decision or self._path_types):
            return None
        return PreScanState(tuple(self._files.values()), self._decision, self._path_types)

    def restore(self, state: PreScanState) -> None:
        self._files = {(file.url, file.version): file for file in state.files}
        self._decision = state.decision
        self._path_types = state.path_types


def _whole_files(items: Sequence[Any]) -> Iterator[DecidingFile]:
    """The files of tuples as single blocks, in order, each once."""
    seen: set[str] = set()
    for item in items:
        for block in item if isinstance(item, SmallFileBatch) else [item]:
            if isinstance(block, BlockMetadata) and block.url not in seen:
                seen.add(block.url)
                end = block.version.size_bytes
                yield DecidingFile(
                    replace(block, start=0, end=end, is_last=True, entry_state=0).continued(
                        resumes=False, decompressed=None
                    )
                )
