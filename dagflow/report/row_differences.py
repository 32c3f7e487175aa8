"""Compares the rows of a table with those that it would have: added, removed, and changed by column.

The rows of both are divided on the disk by their identity, and compared part by part, so that memory does not grow with
the tables.

Source:
    The join of two files that are partitioned by a hash of the keys: the GRACE hash join (Kitsuregawa et al., 1983).
"""

from __future__ import annotations

import heapq
import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.capabilities import REMOVED
from dagflow.api.columns.json_values import readable_rows
from dagflow.api.partitioning import hashes_of
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.report.published_rows import PublishedRows, common_schema, fitted, texts_of

SAMPLED = 10
"""Rows of each kind that are shown."""

_SHARES = 256
"""Parts into which large tables are divided."""

FEW = 1 << 17
"""Rows that are compared at once."""

_LOOKED_AT = 10_000
"""Rows among which a column is looked for that tells rows apart."""

_WRITTEN_BYTES = 32 << 20
"""About how many bytes are divided together."""

_ROW = "_dagflow_row"
"""The number of a row among those of its side."""

Indices = npt.NDArray[np.int64]


@frozen
class RowChange:
    """A row that would change.

    Attributes:
        file: The file of its record; None where that is not known, as of an aggregate.
        offset: The first byte of its record in the file; None where that is not known.
        before: Its values now; None for an added row.
        after: Its values then; None for a removed row.
        columns: The columns that change; all of an added or a removed row.
    """

    file: str | None
    offset: int | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    columns: tuple[str, ...] = ()


@frozen
class RowDifferences:
    """The differences of one table.

    Attributes:
        rows: How many rows there are now.
        identity: What makes two rows the same row, in words.
        keys: The columns that do; none where file and offset do.
        columns: How many rows change in a column, by column.
        samples: Up to ten changes of each kind: "added", "removed", "changed".
    """

    rows: int
    identity: str
    added: int
    removed: int
    changed: int
    keys: Sequence[str] = ()
    columns: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[RowChange]] = field(default_factory=dict)

    @property
    def is_none(self) -> bool:
        return not (self.added or self.removed or self.changed)


@frozen
class Identity:
    """What makes a row of one version of a table the same row as one of another version.

    Rows of one identity, such as several that an operator made of one record, are told apart by their order.

    Attributes:
        keys: Columns whose values identify a row; none where rows have no key.
        place: The columns of the file and the offset of a record; both versions may lack them.
        hidden: Columns that are not compared.
        has_moved: Whether a record may have another place in the later version, as in a file that was corrected.
        replaces: Whether the later version only has the rows that take the place of those with their keys, the last one
            of each key; the others stay, and one with REMOVED leaves.
    """

    keys: Sequence[str] = ()
    place: Sequence[str] = ()
    hidden: Sequence[str] = ()
    has_moved: bool = False
    replaces: bool = False

    def of(self, before: PublishedRows, after: PublishedRows) -> tuple[Sequence[str], str]:
        """The columns that identify a row, and the same in words; none where no column tells rows apart."""
        if self.keys:
            return self.keys, f"by {', '.join(self.keys)}"
        if self.place and not self.has_moved and set(self.place) <= set(before.schema.names):
            return self.place, "by file and offset"
        why = (
            "records have other places in a corrected file" if self.has_moved else "rows do not say from where they are"
        )
        if inferred := _distinguishing(before, after, {*self.place, *self.hidden}):
            return [inferred], f"by '{inferred}': {why}"
        return (), f"as a whole, so that a changed row is removed and added: {why}"


def differences(
    before: PublishedRows, after: PublishedRows, by: Identity, directory: str | None = None, few: int = FEW
) -> RowDifferences:
    """The differences between two versions of a table.

    Args:
        directory: Where rows are kept meanwhile; None for the system's temporary directory.
        few: The rows of each version that are compared at once; more are divided.
    """
    ids, words = by.of(before, after)
    kinds = common_schema([before.schema, after.schema])
    shares = 1 if all(_are_few(rows, few) for rows in (before, after)) else _SHARES
    flat = [each.name for each in kinds if not pa.types.is_nested(each.type)]
    divided_by = ids or [name for name in flat if name not in (*by.place, *by.hidden)]
    counts, columns = Counter[str](), Counter[str]()
    samples: dict[str, list[tuple[int, RowChange]]] = {"added": [], "removed": [], "changed": []}
    with tempfile.TemporaryFile(dir=directory) as first, tempfile.TemporaryFile(dir=directory) as second:
        one = _Divided(first, before, by.hidden, kinds, divided_by, shares)
        other = _Divided(second, after, by.hidden, kinds, divided_by, shares)
        for share in sorted(one.shares | other.shares):
            part = _Part(one.share(share), other.share(share), kinds, ids, by)
            found = part.differences(columns)
            for kind, (number, own) in found.items():
                counts[kind] += number
                samples[kind] = heapq.nsmallest(SAMPLED, [*samples[kind], *own], key=lambda each: each[0])
        rows = one.rows
    shown = {kind: [change for _, change in own] for kind, own in samples.items()}
    ordered = {name: columns[name] for name in kinds.names if columns[name]}
    keys = [name for name in ids if name not in by.place]
    return RowDifferences(rows, words, counts["added"], counts["removed"], counts["changed"], keys, ordered, shown)


def _are_few(rows: PublishedRows, few: int) -> bool:
    return all(number <= few for number in itertools.accumulate(map(len, rows.parts())))


class _Divided:
    """Rows in a temporary file, in shares, each of which has all rows of its identities in their order."""

    def __init__(
        self, file: Any, rows: PublishedRows, hidden: Sequence[str], kinds: pa.Schema, ids: Sequence[str], shares: int
    ) -> None:
        plain = common_schema([pa.schema([each for each in rows.schema if each.name not in hidden])])
        self._schema = plain.append(pa.field(_ROW, pa.int64()))
        self._batches: list[list[int]] = [[] for _ in range(shares)]
        self.rows = 0
        options = pa.ipc.IpcWriteOptions(compression="lz4")
        with pa.ipc.new_file(file, self._schema, options=options) as writer:
            written = 0
            for part in _gathered(fitted(each, plain) for each in rows.parts()):
                numbers = np.arange(self.rows, self.rows + len(part))
                part = part.append_column(_ROW, pa.array(numbers))
                self.rows += len(part)
                homes = _homes(part, kinds, ids, shares)
                order = np.argsort(homes, kind="stable")
                ends = np.searchsorted(homes[order], np.arange(shares), side="right").tolist()
                part = part.take(pa.array(order)) if shares > 1 else part
                for share, (start, end) in enumerate(itertools.pairwise([0, *ends])):
                    if end > start:
                        writer.write_batch(part.slice(start, end - start))
                        self._batches[share].append(written)
                        written += 1
        self._reader = pa.ipc.open_file(file)

    @property
    def shares(self) -> set[int]:
        """The shares that have rows."""
        return {share for share, own in enumerate(self._batches) if own}

    def share(self, number: int) -> pa.Table:
        return pa.Table.from_batches(map(self._reader.get_batch, self._batches[number]), self._schema)


def _gathered(parts: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in parts of about _WRITTEN_BYTES."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for part in parts:
        held.append(part)
        held_bytes += part.nbytes
        if held_bytes > _WRITTEN_BYTES:
            yield from pa.Table.from_batches(held).combine_chunks().to_batches()
            held, held_bytes = [], 0
    if held:
        yield from pa.Table.from_batches(held).combine_chunks().to_batches()


def _homes(rows: pa.RecordBatch, kinds: pa.Schema, ids: Sequence[str], shares: int) -> Indices:
    """The share of each row, by the values that are to be compared."""
    numbers = np.zeros(len(rows), np.uint64)
    if shares > 1:
        for name in ids:
            column = rows.column(name) if name in rows.schema.names else pa.nulls(len(rows), kinds.field(name).type)
            numbers = numbers * np.uint64(31) + _hashes(_comparable(column, kinds.field(name).type))
    return (numbers % np.uint64(shares)).astype(np.int64)


def _hashes(column: pa.Array) -> npt.NDArray[np.uint64]:
    if pa.types.is_integer(column.type):
        numbers: npt.NDArray[np.uint64] = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64)
        return (numbers * np.uint64(0x9E3779B97F4A7C15)) >> np.uint64(32)
    if pa.types.is_temporal(column.type):
        return _hashes(column.cast(pa.int32() if column.type.bit_width == 32 else pa.int64()))
    return hashes_of(column).astype(np.uint64)


def _comparable(column: pa.Array, kind: pa.DataType) -> pa.Array:
    """Values as they are compared: nested ones as JSON, and others in a type that both sides have."""
    if pa.types.is_nested(column.type):
        return texts_of(column)
    column = column if pa.types.is_nested(kind) or column.type == kind else column.cast(kind, safe=False)
    return pc.add(column, pa.scalar(0, column.type)) if pa.types.is_floating(column.type) else column  # one zero


class _Part:
    """The rows of some identities, of both versions."""

    def __init__(self, before: pa.Table, after: pa.Table, kinds: pa.Schema, ids: Sequence[str], by: Identity) -> None:
        self._sides = before, after
        self._ids, self._by = ids, by
        self._names = [name for name in kinds.names if name not in (*by.place, *by.hidden, REMOVED)]
        self._codes = {
            name: _codes(*(_column(side, name, kinds.field(name).type) for side in self._sides))
            for name in kinds.names
            if name not in by.hidden
        }

    def differences(self, columns: Counter[str]) -> dict[str, tuple[int, list[tuple[int, RowChange]]]]:
        """The number of changes by kind, and the first of them by the number of their row; counts changed columns."""
        mine, theirs = self._compared()
        _, (mine, theirs) = _matched(self._codes, [*self._ids, *self._names], mine, theirs)
        pairs, (gone, new) = ((mine[:0], theirs[:0]), (mine, theirs))
        if self._ids:
            pairs, (gone, new) = _matched(self._codes, self._ids, mine, theirs)
        differs = {name: self._codes[name][0][pairs[0]] != self._codes[name][1][pairs[1]] for name in self._names}
        columns.update({name: int(mask.sum()) for name, mask in differs.items()})
        before, after = (self._rows(0, pairs[0]), self._rows(1, pairs[1]))
        changed = [
            (then[_ROW], self._change(was, then, tuple(name for name in self._names if differs[name][row])))
            for row, (was, then) in enumerate(zip(before, after, strict=True))
        ]
        return {
            "added": (len(new), [(row[_ROW], self._change(None, row)) for row in self._rows(1, new)]),
            "removed": (len(gone), [(row[_ROW], self._change(row, None)) for row in self._rows(0, gone)]),
            "changed": (len(pairs[0]), changed),
        }

    def _compared(self) -> tuple[Indices, Indices]:
        """The rows of both sides that are compared."""
        mine, theirs = (np.arange(len(side)) for side in self._sides)
        if not self._by.replaces:
            return mine, theirs
        one, other = _numbers(self._codes, self._ids, mine, theirs)
        _, last = np.unique(other[::-1], return_index=True)
        last = np.sort(len(theirs) - 1 - last)
        if REMOVED in self._codes:
            is_there = _column(self._sides[1], REMOVED, pa.bool_()).is_null()
            last = last[is_there.to_numpy(zero_copy_only=False)[last]]
        return mine[np.isin(one, other)], last

    def _rows(self, side: int, rows: Indices) -> list[dict[str, Any]]:
        return readable_rows(self._sides[side].take(pa.array(rows[:SAMPLED], pa.int64())))

    def _change(
        self, was: dict[str, Any] | None, then: dict[str, Any] | None, columns: tuple[str, ...] = ()
    ) -> RowChange:
        row, place = then or was or {}, self._by.place
        file = row.get(place[0]) if place else None
        left_out = {*place, _ROW, REMOVED}
        before, after = (
            None if side is None else {name: value for name, value in side.items() if name not in left_out}
            for side in (was, then)
        )
        return RowChange(file or None, row.get(place[1]) if file else None, before, after, columns)


def _column(rows: pa.Table, name: str, kind: pa.DataType) -> pa.Array:
    if name not in rows.column_names:
        return pa.nulls(len(rows), pa.string() if pa.types.is_nested(kind) else kind)
    return _comparable(rows.column(name).combine_chunks(), kind)


def _codes(before: pa.Array, after: pa.Array) -> tuple[Indices, Indices]:
    """A number for each value of a column: equal ones have equal numbers in both versions."""
    both = pa.concat_arrays([before, after])
    codes = both.dictionary_encode("encode").indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return codes[: len(before)], codes[len(before) :]


def _matched(
    codes: dict[str, tuple[Indices, Indices]], names: Sequence[str], mine: Indices, theirs: Indices
) -> tuple[tuple[Indices, Indices], tuple[Indices, Indices]]:
    """Pairs of rows that are equal in some columns, each row in one pair, and the rows without a partner, in order."""
    one, other = (_ranked(part, len(mine) + len(theirs)) for part in _numbers(codes, names, mine, theirs))
    _, first, second = np.intersect1d(one, other, assume_unique=True, return_indices=True)
    order = np.argsort(second)
    first, second = first[order], second[order]
    return (mine[first], theirs[second]), (np.delete(mine, first), np.delete(theirs, second))


def _numbers(
    codes: dict[str, tuple[Indices, Indices]], names: Sequence[str], mine: Indices, theirs: Indices
) -> tuple[Indices, Indices]:
    """A number for each row: rows that are equal in some columns have equal numbers."""
    both = np.zeros(len(mine) + len(theirs), np.int64)
    for name in names:
        own = np.concatenate([codes[name][0][mine], codes[name][1][theirs]])
        both = np.unique(both * (own.max(initial=0) + 2) + own, return_inverse=True)[1]
    return both[: len(mine)], both[len(mine) :]


def _ranked(codes: Indices, most: int) -> Indices:
    """The codes, each with its number among those equal to it."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    starts = np.r_[True, ordered[1:] != ordered[:-1]] if len(codes) else np.zeros(0, bool)
    positions = np.arange(len(codes))
    rank = np.empty(len(codes), np.int64)
    rank[order] = positions - np.maximum.accumulate(np.where(starts, positions, 0)) if len(codes) else positions
    found: Indices = codes * (most + 1) + rank
    return found


def _distinguishing(before: PublishedRows, after: PublishedRows, hidden: set[str]) -> str:
    """A column that tells rows apart in both versions, and is the same in most of the rows; "" for none.

    Looked for among the first rows of the earlier version.
    """
    kinds = common_schema([before.schema, after.schema])
    first: list[pa.RecordBatch] = []
    for part in before.parts():
        first.append(part)
        if sum(map(len, first)) >= _LOOKED_AT:
            break
    looked_at = pa.Table.from_batches(first, before.schema).slice(0, _LOOKED_AT)
    values: dict[str, pa.Array] = {}
    for name in before.schema.names:
        if name in after.schema.names and name not in hidden and not pa.types.is_nested(kinds.field(name).type):
            column = _column(looked_at, name, kinds.field(name).type)
            if len(column) and len(pc.unique(column)) == len(column):
                values[name] = column
    if not values:
        return ""
    now, there = _once_among(before, values, kinds)
    then, shared = _once_among(after, values, kinds)
    most = max((shared[name] for name in there.keys() & shared), default=0)
    best = next((name for name in values if name in there and shared.get(name) == most), "")
    return best if most > len(looked_at) * min(1, then / now) // 2 else ""


def _once_among(rows: PublishedRows, values: dict[str, pa.Array], kinds: pa.Schema) -> tuple[int, dict[str, int]]:
    """How many rows there are, and how many have one of the given values of a column, if each of these occurs once."""
    count, shared = 0, {name: pa.array([], own.type) for name, own in values.items()}
    for part in rows.parts():
        count += len(part)
        for name, known in [*shared.items()]:
            column = _comparable(part.column(name), kinds.field(name).type)
            own = pa.concat_arrays([known, column.filter(pc.is_in(column, values[name]))])
            shared[name] = own
            if len(pc.unique(own)) < len(own):
                del shared[name]
    return count, {name: len(own) for name, own in shared.items()}
