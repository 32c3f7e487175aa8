"""First passes over files whose blocks cannot be read apart from each other: what each block is entered in.

Of blocks of a compressed file it is which part of what is compressed in the file they have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum
from typing import Any

from dagflow.storage.roots import expanded, shortened
from operators.files.metadata import BlockMetadata, FileVersion
from operators.reader.compression.opening import Compression, cutting_codec, promised_codec
from operators.reader.compression.splitting import Progress, chains_of, unpack_block
from operators.reader.formats.base import ByteSource, RecordFormat
from operators.reader.growing import resumed

UNKNOWN = -1
"""The state of blocks behind one that could not be looked at: where their records begin is not known."""


class Unread(Enum):
    """What is found of a block that could not be read."""

    UNREAD = "unread"


UNREAD = Unread.UNREAD


class Surveys:
    """Folds what a format found of each block into the state that the next block is entered in.

    Args:
        format: The format.
        compression: What the app says of compression.
    """

    def __init__(self, format: RecordFormat, compression: Compression = "auto") -> None:
        self._format = format
        self._compression = compression
        self._exit_states: dict[tuple[str, FileVersion], int | Progress] = {}

    def is_needed(self, item: Any) -> bool:
        """Whether the format must look at a tuple before its file can be read; a pack holds whole files."""
        if not isinstance(item, BlockMetadata):
            return False
        if not promised_codec(item, self._compression):
            return self._format.needs_prescan(item)
        if cutting_codec(item, self._compression, self._format) is None:
            return False
        progress = self._exit_states.get((item.url, item.version))
        if progress is None and item.is_open:
            return False
        return not (isinstance(progress, Progress) and progress.is_over)

    def examine(self, source: ByteSource, block: BlockMetadata) -> Any:
        """Look at a block, in a task.

        Raises:
            DagflowError: It cannot be read.
        """
        codec = cutting_codec(block, self._compression, self._format)
        if codec is not None:
            return chains_of(source, block, codec)
        return self._format.prescan(source, resumed(self._format, source, block))

    def resolve(self, items: Sequence[Any], findings: Sequence[Any]) -> list[Any]:
        """The tuples with their entry states.

        Args:
            items: In the order of emission.
            findings: For each what the format found, or None where it did not look; UNREAD where it could not.
        """
        return [self._entered(item, finding) for item, finding in zip(items, findings, strict=True)]

    def _entered(self, item: Any, finding: Any) -> Any:
        if not isinstance(item, BlockMetadata):
            return item
        file = (item.url, item.version)
        state = self._exit_states.pop(file, 0) if item.start else 0
        codec = cutting_codec(item, self._compression, self._format)
        if codec is not None and item.start and not isinstance(state, Progress):
            # Of a file that may grow, or of what was appended to one: its first block has all records.
            return item
        if codec is not None:
            progress = state if isinstance(state, Progress) else Progress()
            unpacked, progress = unpack_block(item, None if finding is UNREAD else finding, progress, codec)
            if not item.is_last:
                self._exit_states[file] = progress
            return unpacked
        state = 0 if isinstance(state, Progress) else state
        if finding is UNREAD or (state == UNKNOWN and not item.is_last):
            self._exit_states[file] = UNKNOWN
        elif finding is not None:
            self._exit_states[file] = self._format.exit_state(state, finding)
        return replace(item, entry_state=state) if state != item.entry_state else item

    @property
    def state(self) -> Any:
        """The states of the files whose next blocks come in a later window; None if there are none."""
        return {(shortened(url), version): state for (url, version), state in self._exit_states.items()} or None

    @state.setter
    def state(self, state: Any) -> None:
        self._exit_states = {(expanded(url), version): left for (url, version), left in state.items()}
