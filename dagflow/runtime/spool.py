"""Files that carry items from the tasks of one level to those of a higher one, where all of them run on one host."""

from __future__ import annotations

import contextlib
import os
import pickle
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, BinaryIO

from dagflow.errors import StorageError
from dagflow.execution.messages import ShuffleItem
from dagflow.storage.backends.local.disk import translated

_STORE = "store records that go to another stage"


@dataclass(frozen=True, slots=True)
class SpooledItem:
    """The location of one stored item, and the slot that it goes to.

    Attributes:
        path: The file.
        offset: Its first byte in the file.
        length: Its size in bytes.
        level: Level of the receiving stage.
        slot: The slot within that level.
        order: Its position among the items of the slot.
    """

    path: str
    offset: int
    length: int
    level: int
    slot: int
    order: tuple[int, ...]


class SpoolWriter:
    """Stores the items of one task in a file, which is created with the first item; use it as a context manager.

    Args:
        directory: Where to create the file; the driver removes it with its window.

    Attributes:
        spooled: The stored items, in order of arrival.
    """

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._file: BinaryIO | None = None
        self._path = ""
        self._offset = 0
        self.spooled: list[SpooledItem] = []

    def write(self, item: ShuffleItem) -> None:
        """Store an item.

        Raises:
            StorageError: The item cannot be written to the disk.
        """
        data = pickle.dumps(item, protocol=5)
        with _disk_errors(self._directory, _STORE):
            if self._file is None:
                descriptor, self._path = tempfile.mkstemp(dir=self._directory)
                self._file = os.fdopen(descriptor, "wb")
            self._file.write(data)
        self.spooled.append(SpooledItem(self._path, self._offset, len(data), item.level, item.slot, item.order))
        self._offset += len(data)

    def __enter__(self) -> SpoolWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is not None:
            # After an error, written data is useless; the error of the block is the one to report.
            with _disk_errors(self._directory, _STORE) if error is None else contextlib.suppress(OSError):
                self._file.close()


def read_spooled(spooled: Iterable[SpooledItem]) -> Iterator[Any]:
    """The stored items, one at a time, so that a task holds only one of them in memory.

    Raises:
        StorageError: A file cannot be read.
    """
    with contextlib.ExitStack() as stack:
        files: dict[str, BinaryIO] = {}
        for each in spooled:
            with _disk_errors(each.path, "read records that come from another stage"):
                if each.path not in files:
                    files[each.path] = stack.enter_context(open(each.path, "rb", buffering=0))
                data = os.pread(files[each.path].fileno(), each.length, each.offset)
            yield pickle.loads(data)


@contextlib.contextmanager
def _disk_errors(path: str, action: str) -> Iterator[None]:
    """Turn an OSError into a StorageError that names the action, and how to use another disk."""
    try:
        with translated(path, action):
            yield
    except StorageError as error:
        error.advise(hint="let TMPDIR name a directory on another disk: it says where a local run keeps such records")
        raise
