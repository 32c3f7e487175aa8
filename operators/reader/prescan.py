"""Pre-scans of files whose blocks cannot be read apart from each other: the state in which each block begins.

For blocks of a compressed file the state is which part of the file's content they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any

from pydantic import Field

from dagflow.api.operator import Operator, PreScanner
from dagflow.errors import StorageError, TransientStorageError
from dagflow.storage.context import StorageContext
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.block_files import BlockFiles
from operators.reader.byte_source import ByteSource
from operators.reader.compression.opening import cutting_compression
from operators.reader.compression.recognition import CompressionSetting, expected_compression
from operators.reader.compression.splitting import CutProgress, assign_range, chains_of
from operators.reader.formats import RecordFormatSpec
from operators.reader.formats.base import RecordFormat
from operators.reader.growing import resumed_block
from operators.reader.on_error import OnError

UNKNOWN_STATE = -1
"""The state of blocks behind one that could not be scanned: where their records begin is not known."""


class Unread(Enum):
    """The result for a block that could not be read."""

    UNREAD = "unread"


UNREAD = Unread.UNREAD


@dataclass(frozen=True, slots=True)
class FileEntryState:
    """The state in which the next block of a file begins.

    Attributes:
        url: The file.
        version: Its version.
        entry_state: In the terms of the format.
        cut: How far the file is cut, if it is compressed and cut; its blocks have no entry state.
    """

    url: str
    version: FileVersion
    entry_state: int = 0
    cut: CutProgress | None = None


@dataclass(frozen=True, slots=True)
class PreScanState:
    """What a pre-scan must know of earlier windows.

    Attributes:
        files: Those whose next blocks come in a later window.
    """

    files: tuple[FileEntryState, ...]


class EntryStates:
    """Folds what a pre-scan found of each block into the state in which the next block begins.

    Args:
        format: The format.
        setting: What the app says of compression.
    """

    def __init__(self, format: RecordFormat, setting: CompressionSetting = "auto") -> None:
        self._format = format
        self._setting = setting
        self._files: dict[tuple[str, FileVersion], FileEntryState] = {}

    def needs_prescan(self, item: Any) -> bool:
        """Whether a tuple must be scanned before its file can be read; a small-file batch holds whole files."""
        if not isinstance(item, BlockMetadata):
            return False
        if not expected_compression(item, self._setting):
            return self._format.needs_prescan and not item.is_last
        if cutting_compression(item, self._setting, self._format) is None:
            return False
        file = self._files.get((item.url, item.version))
        if file is None and item.is_open:
            return False
        return file is None or file.cut is None or not file.cut.is_over

    def scan(self, source: ByteSource, block: BlockMetadata) -> Any:
        """Scan a block, in a task.

        Raises:
            DagflowError: It cannot be read.
        """
        compression = cutting_compression(block, self._setting, self._format)
        if compression is not None:
            return chains_of(source, block, compression)
        return self._format.prescan(source, resumed_block(self._format, source, block))

    def resolve(self, items: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """The tuples with their entry states.

        Args:
            items: In the order of emission.
            results: For each what scan gave, or None where it was not scanned; UNREAD where it could not be read.
        """
        return [self._resolved(item, result) for item, result in zip(items, results, strict=True)]

    def _resolved(self, item: Any, result: Any) -> Any:
        if not isinstance(item, BlockMetadata):
            return item
        key = (item.url, item.version)
        file = FileEntryState(item.url, item.version)
        if item.start:
            file = self._files.pop(key, file)
        compression = cutting_compression(item, self._setting, self._format)
        if compression is not None and item.start and file.cut is None:
            # Of a file that may grow, or of what was appended to one: its first block has all records.
            return item
        if compression is not None:
            chains = None if result is UNREAD else result
            block, cut = assign_range(item, chains, file.cut or CutProgress(), compression)
            if not item.is_last:
                self._files[key] = replace(file, cut=cut)
            return block
        state = file.entry_state
        if result is UNREAD or (state == UNKNOWN_STATE and not item.is_last):
            self._files[key] = replace(file, entry_state=UNKNOWN_STATE, cut=None)
        elif result is not None:
            self._files[key] = replace(file, entry_state=self._format.exit_state(state, result), cut=None)
        return replace(item, entry_state=state) if state != item.entry_state else item

    def state(self) -> PreScanState | None:
        """The states of the files whose next blocks come in a later window; None if there are none."""
        return PreScanState(tuple(self._files.values())) if self._files else None

    def restore(self, state: PreScanState) -> None:
        """Take back what state gave."""
        self._files = {(file.url, file.version): file for file in state.files}


class BlockPreScanner(Operator, PreScanner):
    """An operator that reads files in blocks, and pre-scans them where their format needs it."""

    format: Annotated[
        RecordFormatSpec, Field(description="what a record is: a format's name, or {type: name, ...}")
    ] = "lines"  # type: ignore[assignment]  # given as in YAML, and made a format by the validator
    compression: Annotated[
        CompressionSetting,
        Field(description="auto: by what a file holds, which its name must not contradict; none: bytes as they are"),
    ] = "auto"
    on_error: Annotated[
        OnError,
        Field(
            description="a file that cannot be read or decompressed, or changed since it was planned: end the run, or "
            "leave it out"
        ),
    ] = "fail"

    prescan_state_type = PreScanState

    _entry_states: EntryStates
    _prescanned: BlockFiles | None = None

    def check_properties(self) -> None:
        """See Operator."""
        super().check_properties()
        self._entry_states = EntryStates(self.format, self.compression)

    def needs_prescan(self, item: Any) -> bool:
        """Whether the format must scan a block before its file can be read in parallel."""
        return self._entry_states.needs_prescan(item)

    def prescan(self, item: Any, storage: StorageContext) -> Any:
        """Scan a block; where one cannot be read, what lies behind it is left out when it is read."""
        if self._prescanned is None:
            self._prescanned = BlockFiles(storage)
        try:
            return self._entry_states.scan(self._prescanned.open(item), item)
        except TransientStorageError:
            raise
        except StorageError:
            if self.on_error == "fail":
                raise
            return UNREAD

    def resolve(self, items: Sequence[Any], results: Sequence[Any]) -> list[Any]:
        """Give each block the state in which it begins, from the results of the blocks before it."""
        return self._entry_states.resolve(items, results)

    def prescan_state(self) -> PreScanState | None:
        """The states of files whose next blocks come in a later window."""
        return self._entry_states.state()

    def restore_prescan(self, state: PreScanState) -> None:
        """Take the states back after a restart."""
        self._entry_states.restore(state)
