"""Many small files as one tuple, in columns."""

from __future__ import annotations

import itertools
import os
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, overload

import numpy as np

from dagflow.api.ports import TupleBatch
from dagflow.api.saved_values import require_fields
from dagflow.storage.location import archive_of, scheme_of
from operators.files.metadata import NO_CONTINUATION, BlockMetadata, Column, Continuation, FileVersion


@dataclass(frozen=True, slots=True, eq=False)
class SmallFileBatch(TupleBatch):
    """Small files, each of which is one block from its first byte to its last.

    An empty file is a member and has an id, though it has no block: most formats make no record of it,
    but one that makes a record of each file does.

    Attributes:
        first_id: Id of the first member; the others follow without a gap.
        base: The common beginning of all URLs, up to and including a slash; "" where not even the scheme is common.
        names: For each member the rest of its URL.
        mtimes: Modification time of each in nanoseconds since 1970; 0 where the store has none.
        etags: The store's own tags of the contents; () where the store has none.
        is_whole: Whether one task must read all of it.
        is_open: Whether the files may grow, so that a last record without delimiter waits for its end. In a reader's
            report of files that it has read: whether a record does wait in each of them.
        fingerprints: Fingerprints of files that may have grown by the time they are read; () where none was taken.
        discovered_ms: When a scan listed the first of them, in milliseconds since 1970; 0 where that is not known.
        file_ids: Inode number of each; () where the store has none.
    """

    first_id: int
    base: str
    names: NameColumn
    sizes: Column
    mtimes: Column
    etags: Sequence[str] = ()
    is_whole: bool = False
    is_open: bool = False
    fingerprints: Sequence[int] = ()
    discovered_ms: int = 0
    file_ids: Column = field(default_factory=lambda: np.empty(0, np.int64))

    kind: ClassVar[type] = BlockMetadata

    @classmethod
    def of(
        cls,
        first_id: int,
        urls: Sequence[str],
        sizes: Sequence[int],
        mtimes: Sequence[int],
        etags: Sequence[str] = (),
        file_ids: Sequence[int] = (),
    ) -> SmallFileBatch:
        """Put files into a batch, in columns of equal length.

        Args:
            first_id: Id of the first file.
            urls: URLs of at least one file.
            sizes: Length in bytes of each.
            mtimes: Modification time of each in nanoseconds since 1970.
            etags: Etag of each, or () where there are none.
            file_ids: Inode number of each, or () where there are none.
        """
        base, names = _split(urls)
        return cls(
            first_id=first_id,
            base=base,
            names=names,
            sizes=np.array(sizes, np.int64),
            mtimes=np.array(mtimes, np.int64),
            etags=tuple(etags) if any(etags) else (),
            file_ids=np.array(file_ids if any(file_ids) else (), np.int64),
        )

    @property
    def is_divisible(self) -> bool:
        return not self.is_whole

    @property
    def weights(self) -> Column:
        return self.sizes

    def url(self, index: int) -> str:
        return self.base + self.names[index]

    def block(self, index: int) -> BlockMetadata:
        """A member as a block; that of an empty file is empty."""
        size = int(self.sizes[index])
        etag = self.etags[index] if self.etags else ""
        file_id = int(self.file_ids[index]) if len(self.file_ids) else 0
        version = FileVersion(size, int(self.mtimes[index]), etag, file_id)
        prints, continuation = self.fingerprints, NO_CONTINUATION
        if self.is_open or prints:
            continuation = Continuation(self.is_open, prints[index] if prints else 0)
        return BlockMetadata(
            block_id=self.first_id + index,
            url=self.url(index),
            version=version,
            start=0,
            end=size,
            is_last=True,
            discovered_ms=self.discovered_ms,
            continuation=continuation,
        )

    def __iter__(self) -> Iterator[BlockMetadata]:
        """The blocks; an empty file has none."""
        return (self.block(index) for index in np.flatnonzero(self.sizes).tolist())

    def members(self) -> Iterator[BlockMetadata]:
        return map(self.block, range(len(self)))

    def slice(self, start: int, end: int) -> SmallFileBatch:
        return replace(
            self,
            first_id=self.first_id + start,
            names=self.names[start:end],
            sizes=self.sizes[start:end],
            mtimes=self.mtimes[start:end],
            etags=self.etags[start:end],
            fingerprints=self.fingerprints[start:end],
            file_ids=self.file_ids[start:end],
        )

    def by_backend(self) -> Iterator[SmallFileBatch]:
        """The members in parts, in their order, each with files of one backend."""
        has_mark = "!" in self.names.text
        are_members = {archive_of(self.base + name) is not None for name in self.names} if has_mark else {False}
        if self.base and len(are_members) == 1:
            yield self
            return
        start, all_urls = 0, (self.base + name for name in self.names)
        for _, group in itertools.groupby(all_urls, lambda url: (scheme_of(url), archive_of(url) is None)):
            urls = list(group)
            part = self.slice(start, start + len(urls))
            base, names = _split(urls)
            yield replace(part, base=base, names=names, etags=part.etags if any(part.etags) else ())
            start += len(urls)

    def to_json(self) -> dict[str, Any]:
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return values | {
            "names": self.names.text,
            "sizes": self.sizes.tolist(),
            # Files that were made together differ little, and small numbers are written faster.
            "mtimes": np.diff(self.mtimes, prepend=0).tolist(),
            "etags": list(self.etags),
            "fingerprints": list(self.fingerprints),
            "file_ids": np.diff(self.file_ids, prepend=0).tolist(),
        }

    @classmethod
    def from_json(cls, value: dict[str, Any]) -> SmallFileBatch:
        require_fields(cls, value, [field.name for field in fields(cls)])
        columns = {
            "names": NameColumn(value["names"]),
            "sizes": np.array(value["sizes"], np.int64),
            "mtimes": np.cumsum(np.array(value["mtimes"], np.int64)),
            "etags": tuple(value["etags"]),
            "fingerprints": tuple(value["fingerprints"]),
            "file_ids": np.cumsum(np.array(value["file_ids"], np.int64)),
        }
        return cls(**value | columns)


def _split(urls: Sequence[str]) -> tuple[str, NameColumn]:
    """The common beginning of all URLs, up to and including a slash; and the rest of each."""
    # The common beginning of the first and the last in order is that of all.
    common = os.path.commonprefix([min(urls), max(urls)])  # noqa: RUF071  # of bytes, cut at a slash below
    length = common.rfind("/") + 1
    return common[:length], NameColumn.of([url[length:] for url in urls])


class SmallFileBlocks(Sequence[BlockMetadata]):
    """Some blocks of a small-file batch, made when they are asked for: most records are written without their block."""

    __slots__ = ("_batch", "_indices")

    def __init__(self, batch: SmallFileBatch, indices: Column) -> None:
        self._batch = batch
        self._indices = indices

    def __len__(self) -> int:
        return len(self._indices)

    @overload
    def __getitem__(self, index: int) -> BlockMetadata: ...
    @overload
    def __getitem__(self, index: slice) -> SmallFileBlocks: ...
    def __getitem__(self, index: int | slice) -> BlockMetadata | SmallFileBlocks:
        if isinstance(index, slice):
            return SmallFileBlocks(self._batch, self._indices[index])
        return self._batch.block(int(self._indices[index]))

    @property
    def block_ids(self) -> Column:
        return self._batch.first_id + self._indices

    @property
    def urls(self) -> list[str]:
        base = self._batch.base
        return [base + name for name in self._batch.names.take(self._indices)]

    def __reduce__(self) -> tuple[Any, ...]:
        if not len(self._indices):
            return SmallFileBlocks, (self._batch.slice(0, 0), self._indices)
        # A batch that is sent holds only the range of the files that it came from.
        first, last = int(self._indices.min()), int(self._indices.max())
        return SmallFileBlocks, (self._batch.slice(first, last + 1), self._indices - first)


_SEPARATOR = "\0"  # no path has this character


class NameColumn(Sequence[str]):
    """Names in one text, a third of their size as objects: the driver holds the names of several windows."""

    __slots__ = ("_borders", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._borders: array[int] | None = None

    @classmethod
    def of(cls, names: Sequence[str]) -> NameColumn:
        return cls(_SEPARATOR.join([*names, ""]))

    @property
    def text(self) -> str:
        return self._text

    def take(self, positions: Column) -> NameColumn:
        if not len(positions):
            return NameColumn("")
        if (np.diff(positions) == 1).all():
            return self[int(positions[0]) : int(positions[-1]) + 1]
        first, last = int(positions.min()), int(positions.max())
        names = list(self[first : last + 1])
        return NameColumn.of([names[position] for position in (positions - first).tolist()])

    def __len__(self) -> int:
        return self._text.count(_SEPARATOR)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> NameColumn: ...
    def __getitem__(self, index: int | slice) -> str | NameColumn:
        borders = self._found_borders()
        if isinstance(index, slice):
            start, end, step = index.indices(len(borders) - 1)
            if step != 1:
                raise ValueError(f"names are taken out in a row, not in steps of {step}")
            return NameColumn(self._text[borders[start] : borders[max(start, end)]])
        position = range(len(borders) - 1)[index]
        return self._text[borders[position] : borders[position + 1] - 1]

    def _found_borders(self) -> array[int]:
        """The start of each name in the text, and the end of the text."""
        if self._borders is None:
            # All characters get the same number of bytes; lone surrogates stand for bytes that are not UTF-8.
            is_ascii = self._text.isascii()
            encoded = self._text.encode("ascii" if is_ascii else "utf-32-le", "surrogatepass")
            separators = np.flatnonzero(np.frombuffer(encoded, np.uint8 if is_ascii else "<u4") == 0)
            self._borders = array("q", np.append(0, separators + 1).tobytes())
        return self._borders

    def __iter__(self) -> Iterator[str]:
        return iter(self._text.split(_SEPARATOR)[:-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return NameColumn, (self._text,)
