"""Where records come from: the files that tuples name, and the blocks of an output file in a compact form."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import UNKNOWN, Origin, RecordBatch
from dagflow.frozen import frozen
from dagflow.storage.columns import flags_of
from dagflow.storage.location import name_of

WHOLE = -1
"""Start or end of an output file that shares no block with its neighbour."""


UNKNOWN_BLOCK = -1
"""Stands for the id of a tuple that has none."""


class FilePart(Protocol):
    """A tuple that names a part of a file.

    A tuple need not extend this class or SourceRange: an author's own dataclass with these attributes is one.

    Attributes:
        end: One past the last byte.
    """

    url: str
    start: int
    end: int


class SourceVersion(Protocol):
    """The version of a file that a tuple was planned with.

    Attributes:
        mtime_ns: Its modification time in nanoseconds since 1970; 0 where the store has none.
        etag: The store's own tag of the content; "" where it has none.
        file_id: Inode number, by which a renamed file is found; 0 where unknown.
    """

    size_bytes: int
    mtime_ns: int
    etag: str
    file_id: int


class SourceRange(FilePart, Protocol):
    """A tuple that names a part of a version of a file, which a window counts as input.

    It may also have an id, a time and an earlier name: see block_id_of, discovered_ms_of and moved_from_of.
    """

    version: SourceVersion


# Not by isinstance: with a runtime-checkable protocol it takes 50 times as long, and manifests check each block.
def is_file_part(item: Any) -> TypeGuard[FilePart]:
    """Whether a tuple of any class names a part of a file."""
    return all(hasattr(item, name) for name in ("url", "start", "end"))


def is_source_range(item: Any) -> TypeGuard[SourceRange]:
    """Whether a tuple of any class names a part of a version of a file."""
    return hasattr(item, "version") and is_file_part(item)


def url_of(item: Any) -> str:
    """The file that a tuple of any class names; "" for none."""
    return getattr(item, "url", "")


def block_id_of(item: Any) -> int:
    """The id of a tuple of any class; UNKNOWN_BLOCK where it has none."""
    return getattr(item, "block_id", UNKNOWN_BLOCK)


def accounting_key(item: Any) -> str:
    """The name of a file version in the byte accounting, for a tuple that is a SourceRange."""
    # Not its path: a tree may be moved before the rest of the file is read. Two files with the same name and all other
    # facts share a sum, which must be zero, too.
    version = item.version
    return f"{name_of(item.url)} of {version.size_bytes} bytes, {version.mtime_ns} {version.etag}".rstrip()


def discovered_ms_of(item: Any) -> int:
    """When a scan listed the file of a tuple, in milliseconds since 1970; 0 where the tuple does not record it."""
    return getattr(item, "discovered_ms", 0)


def is_first_part(item: SourceRange) -> bool:
    """Whether a tuple is the first part of a file: none of the file's content was planned before it."""
    return not (item.start or content_start_of(item))


def content_start_of(item: Any) -> int:
    """How many bytes of the content of a tuple's compressed file were read before, under another name."""
    return getattr(getattr(item, "continuation", item), "content_start", 0)


def is_gone(item: Any) -> bool:
    """Whether the file of a tuple was deleted, so that the tuple only replaces an earlier version."""
    return getattr(getattr(item, "continuation", item), "is_gone", False)


def moved_from_of(item: Any) -> str:
    """The earlier URL of a tuple's file; "" where the tuple names none."""
    return getattr(getattr(item, "continuation", item), "moved_from", "")


VersionFacts = tuple[int, int, int]
"""Size, modification time and identity of a version of a file: the identity is its inode, or a hash of its tag."""


def version_facts_of(item: SourceRange) -> VersionFacts:
    """The facts by which a splitter remembers the version of a tuple's file."""
    version = item.version
    return version.size_bytes, version.mtime_ns, getattr(version, "identity", version.file_id)


def version_number(url: str, size_bytes: int, mtime_ns: int, etag: str) -> int:
    """A number of 64 bits for a version of a file, which is the same wherever it is read."""
    text = f"{url}\0{size_bytes} {mtime_ns} {etag}"
    return int.from_bytes(
        hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).digest(), "little", signed=True
    )


def supersedes_of(item: Any) -> VersionFacts | None:
    """The version of a tuple's file whose records those of the tuple's version replace; None for none."""
    return getattr(getattr(item, "continuation", item), "supersedes", None)


@frozen
class FileSources:
    """The blocks of an output file.

    Attributes:
        runs: Ids of the blocks: the first of consecutive ids and how many there are, then the next such pair.
        start: Offset of the first record in the first block, if the file before also has records of the block.
        end: Offset of the first record of the last block that is in the next file, if any is.
        counts: How many records of each block the file has, in the order of ids().
    """

    runs: tuple[int, ...] = ()
    start: int = WHOLE
    end: int = WHOLE
    counts: tuple[int, ...] = ()

    @classmethod
    def of(
        cls, ids: Sequence[int], counts: Sequence[int] | None = None, start: int = WHOLE, end: int = WHOLE
    ) -> FileSources:
        """The sources with these block ids, in any order, also repeated; without counts each is of one record."""
        ordered, places = np.unique(np.asarray(ids, np.int64), return_inverse=True)
        sums = np.zeros(len(ordered), np.int64)
        np.add.at(sums, places, 1 if counts is None else np.asarray(counts, np.int64))
        firsts = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 2) != 1)
        runs = np.column_stack([ordered[firsts], np.diff(firsts, append=len(ordered))])
        return cls(tuple(runs.ravel().tolist()), start, end, tuple(sums.tolist()))

    def ids(self) -> list[int]:
        """The ids, ascending."""
        pairs = zip(self.runs[::2], self.runs[1::2], strict=True)
        return [block_id for first, count in pairs for block_id in range(first, first + count)]

    def to_json(self) -> list[int]:
        """The sources as numbers, the first id of each run as its distance from the end of the one before."""
        firsts, lengths = np.asarray(self.runs, np.int64).reshape(-1, 2).T
        distances = np.diff(np.ravel(np.column_stack([firsts, firsts + lengths])), prepend=0)
        return [self.start, self.end, len(self.runs), *distances.tolist(), *self.counts]

    @classmethod
    def from_json(cls, value: Sequence[int]) -> FileSources:
        """The sources from the values of to_json()."""
        start, end, length, *rest = value
        firsts, ends = np.cumsum(np.asarray(rest[:length], np.int64)).reshape(-1, 2).T
        runs = np.column_stack([firsts, ends - firsts]).ravel()
        return cls(tuple(runs.tolist()), start, end, tuple(rest[length:]))


Numbers = npt.NDArray[np.int64]


def block_runs(batch: RecordBatch, first: int, last: int) -> tuple[Numbers, Numbers] | None:
    """The blocks of some of a batch's records, in the order of these: ids, and how many records in a row are of each.

    Args:
        first: Position of the first record.
        last: One past the position of the last one; if both are equal, all blocks of the batch are given, with 0.

    Returns:
        None where an operator did not keep them.
    """
    if batch.origin is None:
        return None
    blocks = batch.origin.blocks
    codes = np.arange(len(blocks), dtype=np.int32)
    counts = np.full(len(blocks), last - first, np.int64)
    if len(blocks) > 1 and first < last:
        codes, counts = _stretches_of(batch.origin, len(batch), first, last)
        if (codes == UNKNOWN).any():
            return None
    ids = _ids_of(blocks, codes)
    return None if UNKNOWN_BLOCK in ids else (ids, counts)


def _ids_of(blocks: Sequence[Any], codes: npt.NDArray[np.int32]) -> Numbers:
    # Small files have theirs in a column: their blocks are made only on demand.
    known: Numbers | None = getattr(blocks, "block_ids", None)
    if known is not None:
        return known[codes]
    found, places = np.unique(codes, return_inverse=True)
    return np.array([block_id_of(blocks[index]) for index in found.tolist()], np.int64)[places]


def record_block_ids(batch: RecordBatch) -> npt.NDArray[np.int64]:
    """The id of the block of each record; UNKNOWN_BLOCK where an operator did not keep it."""
    origin = batch.origin
    if origin is None:
        return np.full(len(batch), UNKNOWN_BLOCK, np.int64)
    codes = origin.block_indices(len(batch))
    return np.where(codes == UNKNOWN, UNKNOWN_BLOCK, _ids_of(origin.blocks, codes))


def version_numbers(batch: RecordBatch) -> npt.NDArray[np.int64]:
    """The version_number() of the file of each record.

    Raises:
        ValueError: An operator did not keep the files that records come from.
    """
    origin = batch.origin
    codes = np.full(len(batch), UNKNOWN) if origin is None else origin.block_indices(len(batch))
    if origin is None or (codes == UNKNOWN).any():
        raise ValueError(
            "the files that records come from are not known here, so that no later version could take their place: let "
            "operators of yours keep batch.origin, or let on_change say reread"
        )
    versions = [(each.url, each.version) for each in origin.blocks]
    numbers = [version_number(url, each.size_bytes, each.mtime_ns, each.etag) for url, each in versions]
    return np.array(numbers, np.int64)[codes]


def _stretches_of(origin: Origin, count: int, first: int, last: int) -> tuple[npt.NDArray[np.int32], Numbers]:
    """The index of the block of each stretch of consecutive records, and its length; see block_runs()."""
    if (first, last) == (0, count) and origin.block_codes is not None and len(origin.selections) == 1:
        (mask,) = origin.selections
        if isinstance(mask, pa.BooleanArray):
            # Most batches have passed a filter: the codes of the records that it left are not copied.
            begins = _begins(origin.block_codes)
            left: Numbers = np.add.reduceat(flags_of(mask).view(np.uint8), begins, dtype=np.int64)
            return origin.block_codes[begins[left > 0]], left[left > 0]
    codes = origin.block_indices(count)[first:last]
    begins = _begins(codes)
    return codes[begins], np.diff(begins, append=len(codes))


def _begins(codes: npt.NDArray[np.int32]) -> Numbers:
    """The start of each stretch of equal numbers, of one number or more."""
    return np.append(0, np.flatnonzero(codes[1:] != codes[:-1]) + 1)


def encode_sources(files: Iterable[FileSources | None]) -> list[list[int]]:
    """The sources of files that one task wrote, in their order; an empty list for a file with unknown sources."""
    encoded = [[] if sources is None else sources.to_json() for sources in files]
    return encoded if any(encoded) else []


def decode_sources(encoded: Sequence[Sequence[int]], files: int) -> list[FileSources | None]:
    """The sources that were given to encode_sources(), for this many files."""
    decoded = [FileSources.from_json(value) if value else None for value in encoded]
    return decoded + [None] * (files - len(decoded))
