"""Formats that read many small files at once, from one buffer that holds them one after the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import RecordBatch
from operators.files.file_columns import Column
from operators.files.small_file_batch import SmallFileBatch, SmallFileBlocks


@dataclass(frozen=True, slots=True)
class BufferedFiles:
    """Files in a buffer, one after the other.

    Attributes:
        buffer: Their bytes.
        borders: One more than there are files: where each begins, and where the last one ends.
        batch: The small-file batch of the files.
        indices: Their indices in the batch.
        grown: Indices of files that were appended to since they were planned.
    """

    buffer: pa.Buffer
    borders: npt.NDArray[np.int64]
    batch: SmallFileBatch
    indices: Column
    grown: frozenset[int] = frozenset()

    @property
    def sizes(self) -> Column:
        """The files' own lengths, without delimiters that were added to files."""
        return self.batch.sizes[self.indices]

    @property
    def data(self) -> npt.NDArray[np.uint8]:
        """The bytes of all files, without copying them."""
        return np.frombuffer(self.buffer, np.uint8, int(self.borders[-1]))

    def blocks(self, chosen: npt.NDArray[np.bool_] | None = None) -> SmallFileBlocks:
        """The block of each file, or of some of them, for the origin of a batch of their records."""
        return SmallFileBlocks(self.batch, self.indices if chosen is None else self.indices[chosen])

    def only(self, chosen: npt.NDArray[np.bool_]) -> BufferedFiles:
        """Some of the files. They are adjacent if the others are empty in the buffer."""
        return replace(
            self, borders=np.append(self.borders[:-1][chosen], self.borders[-1]), indices=self.indices[chosen]
        )


class MultiFileReader(ABC):
    """Reads the records of many files at once.

    Guarantee: the records are those that the format reads from each file by itself, one after the other.
    """

    endings: bytes = b""
    """A file must end with one of these bytes; the first is added to a file that does not. Empty: any will do."""

    @abstractmethod
    def read(self, files: BufferedFiles) -> RecordBatch | None:
        """Read the records of all files; None where they must be read one by one after all."""
