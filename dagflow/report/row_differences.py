"""Compares the rows of a table with those that it would have: added, removed, and changed by column."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagflow.api.columns.json_values import readable_rows
from dagflow.frozen import frozen

SAMPLED = 10
"""Rows of each kind that are shown."""

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
        identity: What makes two rows the same row, in words.
        columns: How many rows change in a column, by column.
        samples: Up to ten changes of each kind: "added", "removed", "changed".
    """

    identity: str
    added: int
    removed: int
    changed: int
    columns: dict[str, int] = field(default_factory=dict)
    samples: dict[str, list[RowChange]] = field(default_factory=dict)

    @property
    def is_none(self) -> bool:
        return not (self.added or self.removed or self.changed)


def differences(
    before: pa.Table, after: pa.Table, keys: Sequence[str] = (), place: Sequence[str] = (), hidden: Sequence[str] = ()
) -> RowDifferences:
    """The differences between two versions of a table.

    Rows of one identity, such as several that an operator made of one record, are told apart by their order.

    Args:
        keys: Columns whose values identify a row; none where rows have no key.
        place: The columns of the file and the offset of a record; both versions may lack them.
        hidden: Columns that are not compared.
    """
    left, right = _aligned(before, after, hidden)
    names = [name for name in left.column_names if name not in place]
    if keys:
        ids, identity = list(keys), f"by {', '.join(keys)}"
    elif place and set(place) <= set(before.column_names):
        ids, identity = list(place), "by file and offset"
    else:
        ids, identity = [], ""
    codes = {name: _codes(left.column(name), right.column(name)) for name in left.column_names}
    mine, theirs = np.arange(len(left)), np.arange(len(right))
    _, (mine, theirs) = _matched(codes, [*ids, *names], mine, theirs)
    if not ids and (inferred := _distinguishing(codes, names)):
        ids, identity = (
            [inferred],
            f"by '{inferred}': rows do not say from where they are",
        )
    pairs, (gone, new) = _matched(codes, ids, mine, theirs) if ids else ((mine[:0], theirs[:0]), (mine, theirs))
    differs = {name: codes[name][0][pairs[0]] != codes[name][1][pairs[1]] for name in names}
    identity = identity or "as a whole, so that a changed row is removed and added: rows do not say from where they are"
    at = place if set(place) <= set(after.column_names) else ()
    pair = [(int(old), int(found)) for old, found in zip(pairs[0][:SAMPLED], pairs[1][:SAMPLED], strict=True)]
    changes = [tuple(name for name in names if differs[name][row]) for row in range(len(pair))]
    old, later = _rows(before, [row for row, _ in pair]), _rows(after, [row for _, row in pair])
    return RowDifferences(
        identity,
        added=len(new),
        removed=len(gone),
        changed=len(pairs[0]),
        columns={name: int(mask.sum()) for name, mask in differs.items() if mask.any()},
        samples={
            "added": [
                RowChange(*_place(row, at), None, _without(row, place, hidden)) for row in _rows(after, new[:SAMPLED])
            ],
            "removed": [
                RowChange(*_place(row, place), _without(row, place, hidden), None)
                for row in _rows(before, gone[:SAMPLED])
            ],
            "changed": [
                RowChange(*_place(then, at), _without(was, place, hidden), _without(then, place, hidden), columns)
                for was, then, columns in zip(old, later, changes, strict=True)
            ],
        },
    )


def with_keys_of(rows: pa.Table, others: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The rows whose keys are among those of other rows."""
    one, other = _aligned(rows.select(keys), others.select(keys), ())
    codes = {name: _codes(one.column(name), other.column(name)) for name in keys}
    mine, theirs = _numbers(codes, keys, np.arange(len(rows)), np.arange(len(others)))
    return rows.filter(pa.array(np.isin(mine, theirs)))


def _rows(table: pa.Table, rows: Iterable[int]) -> list[dict[str, Any]]:
    return readable_rows(table.take(pa.array([int(row) for row in rows], pa.int64())))


def _place(row: dict[str, Any], place: Sequence[str]) -> tuple[str | None, int | None]:
    if not place or not row.get(place[0]):
        return None, None
    return row[place[0]], row.get(place[1])


def _without(row: dict[str, Any], *names: Sequence[str]) -> dict[str, Any]:
    return {name: value for name, value in row.items() if not any(name in others for others in names)}


def _aligned(before: pa.Table, after: pa.Table, hidden: Sequence[str]) -> tuple[pa.Table, pa.Table]:
    """The columns of both, in the same types; a column that one of them lacks is null there."""
    columns: dict[str, tuple[Any, Any]] = {}
    for name in dict.fromkeys([*before.column_names, *after.column_names]):
        if name not in hidden:
            found = [table.column(name) if name in table.column_names else None for table in (before, after)]
            kind = next(column.type for column in found if column is not None)
            pair = [pa.chunked_array([pa.nulls(len(table), kind)]) for table in (before, after)]
            pair = [own if column is None else column for own, column in zip(pair, found, strict=True)]
            columns[name] = _of_one_type(*pair)
    mine, theirs = (pa.table({name: pair[side] for name, pair in columns.items()}) for side in (0, 1))
    return mine, theirs


def _of_one_type(before: Any, after: Any) -> tuple[Any, Any]:
    if before.type == after.type and not pa.types.is_nested(before.type):
        return before, after
    try:
        return before, after.cast(before.type) if not pa.types.is_nested(before.type) else _texts(after)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return _texts(before), _texts(after)


def _texts(column: Any) -> Any:
    return pa.chunked_array(
        [pa.array([json.dumps(row["v"], default=str) for row in readable_rows(pa.table({"v": column}))], pa.string())]
    )


def _codes(before: Any, after: Any) -> tuple[Indices, Indices]:
    """A number for each value of a column: equal ones have equal numbers in both versions."""
    both = pa.chunked_array([*before.chunks, *after.chunks], before.type).combine_chunks()
    if pa.types.is_floating(both.type):
        both = pc.add(both, pa.scalar(0, both.type))  # one zero
    encoded = both if isinstance(both, pa.DictionaryArray) else pc.dictionary_encode(both, null_encoding="encode")
    codes = encoded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
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


def _distinguishing(codes: dict[str, tuple[Indices, Indices]], names: Sequence[str]) -> str:
    """A column that differs among the rows of each version, and is the same in most of both; "" for none."""
    best, most = "", 0
    for name in names:
        one, other = codes[name]
        shared = len(np.intersect1d(one, other))
        is_shared = shared > max(most, min(len(one), len(other)) // 2)
        if is_shared and len(np.unique(one)) == len(one) and len(np.unique(other)) == len(other):
            best, most = name, shared
    return best
