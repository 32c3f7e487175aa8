"""Emits each file when all of it is read and published."""

from __future__ import annotations

from bisect import bisect_right, insort
from typing import Any

from dagflow.api.control import ControlOperator
from dagflow.api.ports import InputPort, OutputPort
from dagflow.frozen import frozen
from operators.files.metadata import BlockMetadata, FileMetadata


@frozen
class FileInProgress:
    """A file that is begun and not completely read."""

    file: FileMetadata
    blocks_left: int


@frozen
class FileCompletionState:
    """The state of FileCompletion.

    Attributes:
        files: The files that are begun, in the order in which they were found.
    """

    files: list[FileInProgress]


class FileCompletion(ControlOperator):
    """Emits a file's metadata in the window in which the last of its blocks is published.

    It takes in the files that the splitter emits, and the blocks that the readers have read. A file without blocks
    is done in the window that found it; directories are never reported. A file is not done if one of its blocks was
    left out, because it could not be read.

    Guarantee: each file once for each time that the splitter found it, also after crashes; a file that was
    appended to or replaced was found anew. Its state grows with the files that are begun and not done.

    Ports:
        files_metadata_input: The files, from the splitter's files_metadata_output.
        blocks_metadata_input: The blocks that were read, from the reader's blocks_metadata_output.
        output: The files that are done, in the order in which they were found.
    """

    files_metadata_input = InputPort(FileMetadata)
    blocks_metadata_input = InputPort(BlockMetadata)
    output = OutputPort(FileMetadata)

    state_type = FileCompletionState

    def __init__(self, **properties: Any) -> None:
        super().__init__(**properties)
        self._files: dict[int, FileMetadata] = {}
        """Files that are begun, by the id of their first block."""
        self._remaining: dict[int, int] = {}
        self._first_ids: list[int] = []
        self._done: list[FileMetadata] = []

    @files_metadata_input.each
    def begin(self, file: FileMetadata) -> None:
        """Wait for the blocks of a file."""
        if file.is_directory:
            return
        if not file.block_count:
            self._done.append(file)
            return
        self._files[file.first_block_id] = file
        self._remaining[file.first_block_id] = file.block_count
        insort(self._first_ids, file.first_block_id)

    @blocks_metadata_input.each
    def read(self, block: BlockMetadata) -> None:
        """Note that a block was read."""
        index = bisect_right(self._first_ids, block.block_id) - 1
        first_id = self._first_ids[index] if index >= 0 else block.block_id
        file = self._files.get(first_id)
        if file is None or block.block_id >= first_id + file.block_count or file.url != block.url:
            raise ValueError(
                f"block {block.block_id} of {block.url} is of no file that was announced; connect the splitter's "
                "files_metadata_output to files_metadata_input"
            )
        self._remaining[first_id] -= 1
        if not self._remaining[first_id]:
            del self._remaining[first_id], self._first_ids[index]
            self._done.append(self._files.pop(first_id))

    def end_window(self) -> None:
        # An empty file shares its id with the next file, and was found first.
        for file in sorted(self._done, key=lambda file: (file.first_block_id, file.block_count)):
            self.output.emit(file)
        self._done.clear()

    def snapshot(self) -> FileCompletionState:
        return FileCompletionState(
            [FileInProgress(file, self._remaining[first_id]) for first_id, file in self._files.items()]
        )

    def restore(self, state: FileCompletionState) -> None:
        self._files = {each.file.first_block_id: each.file for each in state.files}
        self._remaining = {each.file.first_block_id: each.blocks_left for each in state.files}
        self._first_ids = sorted(self._files)
