"""Compares the rows of a table with those that it would have: added, removed, and changed by column.

The rows of both are divided on the disk by their identity, and compared part by part, so that memory does not grow with
the tables.

Source:
    The join of two files that are partitioned by a hash of the keys: the GRACE hash join (Kitsuregawa et al., 1983).
"""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.capabilities import REMOVED
from dagflow.api.columns.json_values import readable_rows
from dagflow.api.partitioning import hashes_of
from dagflow.api.transactions import RowOrigin
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.report.published_rows import PublishedRows, common_schema, fitted, texts_of

SAMPLED = 10
"""Rows of each kind that are shown."""

FEW = 1 << 17
"""Rows that are compared at once; more are divided."""

_MOST_SHARES, _WRITTEN_TOGETHER = 1000, 256
"""Shares into which a table is divided, and rows of each that are written together."""

_LOOKED_AT = 10_000
"""Rows among which a column is looked for that tells rows apart."""

_SHARE = "_dagflow_share"
_PRIME = (1 << 13) - 1

Indices = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]


@frozen
class RowChange:
    """A row that would change.

    Attributes:
        file: The file of its record; None where that is not known, as of an aggregate.
        offset: The first byte of its record in the file; None where that is not known.
        before: Its values now; None for an added row.
        after: Its values then; None for a removed row.
        columns: The columns that change; none for an added or a removed row.
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
    keys: Sequence[str]
    columns: dict[str, int]
    samples: dict[str, list[RowChange]]

    @property
    def is_none(self) -> bool:
        return not (self.added or self.removed or self.changed)


@frozen
class Identity:
    """What makes a row of one version of a table the same row as one of another version.

    Attributes:
        keys: Columns of which no two rows have the same values.
        origin: The columns that say from where a row is; a version may lack them. They are not compared. Rows of one
            record are told apart by their order.
        corrected: The files that have other versions in the later version of the table, where records have other
            places; the rows of the earlier one that do not say their file are of the only one.
        replaces: Whether the later version only has the rows that take the place of those with their keys, the last one
            of each key; the others stay, and one with REMOVED leaves.
    """

    keys: Sequence[str] = ()
    origin: RowOrigin | None = None
    corrected: Sequence[str] = ()
    replaces: bool = False

    @property
    def place(self) -> list[str]:
        return [] if self.origin is None else [self.origin.file, self.origin.offset]

    def compared(self, schema: pa.Schema) -> list[str]:
        """The columns whose values are compared."""
        window = [] if self.origin is None else [self.origin.window]
        return [name for name in schema.names if name not in (*self.place, *window, REMOVED)]

    def of(self, before: PublishedRows, after: PublishedRows) -> tuple[Sequence[str], str]:
        """The columns that identify a row, and the same in words; none where no column tells rows apart."""
        if self.keys:
            return self.keys, f"by {', '.join(self.keys)}"
        if self.place and not self.corrected and set(self.place) <= set(before.schema.names):
            return self.place, "by file and offset"
        why = (
            "records have other places in a corrected file" if self.corrected else "rows do not say from where they are"
        )
        if inferred := _distinguishing(before, after, self):
            return [inferred], f"by '{inferred}': {why}"
        return (), f"as a whole, so that a changed row is removed and added: {why}"


def differences(
    before: PublishedRows, after: PublishedRows, by: Identity, directory: str | None = None, few: int = FEW
) -> RowDifferences:
    """The differences between two versions of a table.

    More than `few` rows are divided, and wait in the directory; None for the system's temporary directory.
    """
    ids, words = by.of(before, after)
    schema = common_schema([before.schema, after.schema])
    names, rows = by.compared(schema), before.count()
    own = [by.compared(side.schema) for side in (before, after)]
    shares = min(_MOST_SHARES, 1 + max(rows, after.count()) // few)
    counts, changed = Counter[str](), Counter[str]()
    samples: dict[str, list[RowChange]] = {"added": [], "removed": [], "changed": []}
    divided = (_divided(side, schema, ids or names, shares, directory) for side in (before, after))
    for one, other in zip(*divided, strict=True):
        both = pa.concat_tables([one, other])
        kinds, differs = _compared(both, len(one), names, ids or names, by.replaces)
        changed.update({name: int(mask.sum()) for name, mask in differs.items()})
        for kind, pair in kinds.items():
            counts[kind] += max(map(len, pair))
            first = [rows[: SAMPLED - len(samples[kind])] for rows in pair]
            samples[kind] += _sampled((readable_rows(both.take(pa.array(rows))) for rows in first), own, differs, by)
    keys = [name for name in ids if name not in by.place]
    columns = {name: changed[name] for name in names if changed[name]}
    return RowDifferences(rows, words, counts["added"], counts["removed"], counts["changed"], keys, columns, samples)


def _divided(
    rows: PublishedRows, schema: pa.Schema, ids: Sequence[str], shares: int, directory: str | None
) -> Iterator[pa.Table]:
    """The rows in tables, each of which has all rows of its identities in their order."""
    # Imported late: only large tables are divided.
    from pyarrow import dataset

    parts = (fitted(part, schema) for part in rows.parts())
    if shares == 1:
        yield pa.Table.from_batches(parts, schema)
        return
    homes = (part.append_column(_SHARE, pa.array(_hashes(part, ids) % np.uint64(shares))) for part in parts)
    written = schema.append(pa.field(_SHARE, pa.uint64()))
    options = {"format": "ipc", "use_threads": False, "min_rows_per_group": _WRITTEN_TOGETHER}
    with tempfile.TemporaryDirectory(dir=directory) as folder:
        dataset.write_dataset(homes, folder, schema=written, partitioning=[_SHARE], **options)
        for path in (Path(folder, str(share)) for share in range(shares)):
            yield dataset.dataset(path, format="ipc").to_table() if path.exists() else schema.empty_table()


def _hashes(rows: pa.RecordBatch, names: Sequence[str]) -> npt.NDArray[np.uint64]:
    """A hash of some values of each row."""
    hashes = np.zeros(len(rows), np.uint64)
    for column in (_comparable(rows.column(name)) for name in names):
        kind = column.type
        if pa.types.is_primitive(kind) and not pa.types.is_boolean(kind):
            own = column.view(f"int{kind.bit_width}").cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
        else:
            own = hashes_of(column)
        hashes = hashes * np.uint64(31) + own.astype(np.uint64)
    return hashes % np.uint64(_PRIME)


def _comparable(column: pa.Array) -> pa.Array:
    """Values as they are compared: nested ones as JSON, and one zero."""
    if pa.types.is_nested(column.type):
        return texts_of(column)
    return pc.add(column.cast(pa.float64()), 0.0) if pa.types.is_floating(column.type) else column


def _compared(
    both: pa.Table, border: int, names: Sequence[str], ids: Sequence[str], replaces: bool
) -> tuple[dict[str, tuple[Indices, Indices]], dict[str, Mask]]:
    """The rows of both versions by kind of change, and, by column, which of the changed ones differ there."""
    codes: dict[str, Indices] = {}
    for name in dict.fromkeys([*ids, *names]):
        # Equal values have equal numbers.
        encoded = _comparable(both.column(name).combine_chunks()).dictionary_encode("encode")
        codes[name] = encoded.indices.cast(pa.int64()).to_numpy()
    identities, contents = (_numbers(len(both), own) for own in ([codes[name] for name in ids], codes.values()))
    one, other = np.split(np.arange(len(both)), [border])
    if replaces:
        one = one[np.isin(identities[one], identities[other])]
        other = np.array(sorted(dict(zip(identities[other], other, strict=True)).values()), np.int64)
        if REMOVED in both.column_names:
            other = other[both.column(REMOVED).take(other).is_null().to_numpy()]
    _, _, one, other = _matched(contents, one, other)
    was, then, gone, new = _matched(identities, one, other)
    differs = {name: codes[name][was] != codes[name][then] for name in names}
    return {"added": (new[:0], new), "removed": (gone, gone[:0]), "changed": (was, then)}, differs


def _numbers(rows: int, codes: Iterable[Indices]) -> Indices:
    """A number for each row: rows with equal codes have equal numbers."""
    numbers = np.zeros(rows, np.int64)
    for own in codes:
        numbers = np.unique(numbers * (own.max(initial=0) + 1) + own, return_inverse=True)[1]
    return numbers


def _matched(numbers: Indices, one: Indices, other: Indices) -> tuple[Indices, Indices, Indices, Indices]:
    """Pairs of rows with equal numbers, each row in one pair, and the rows without a partner, in order."""
    (one, first), (other, second) = _ranked(numbers, one), _ranked(numbers, other)
    is_paired, has_partner = np.isin(first, second, assume_unique=True), np.isin(second, first, assume_unique=True)
    order = np.argsort(other[has_partner])
    pairs = one[is_paired][order], other[has_partner][order]
    return *pairs, np.sort(one[~is_paired]), np.sort(other[~has_partner])


def _ranked(numbers: Indices, rows: Indices) -> tuple[Indices, Indices]:
    """Rows in the order of their numbers, and these, each with its place among those equal to it."""
    rows = rows[np.argsort(numbers[rows], kind="stable")]
    ordered = numbers[rows]
    return rows, (ordered << 32) + np.arange(len(rows)) - np.searchsorted(ordered, ordered)


def _sampled(
    sides: Iterable[list[dict[str, Any]]], names: Sequence[Sequence[str]], differs: dict[str, Mask], by: Identity
) -> Iterator[RowChange]:
    """Changes of a kind, by the rows of both versions."""
    for number, rows in enumerate(itertools.zip_longest(*sides)):
        file, offset = map((rows[1] or rows[0]).get, by.place or ("", ""))
        if rows[1] is None and len(by.corrected) == 1:
            file = file or by.corrected[0]
        before, after = (row and {name: row[name] for name in own} for row, own in zip(rows, names, strict=True))
        columns = [name for name, mask in differs.items() if mask[number]] if all(rows) else ()
        yield RowChange(file or None, offset if file else None, before, after, tuple(columns))


def _distinguishing(before: PublishedRows, after: PublishedRows, by: Identity) -> str:
    """A column that tells rows apart, and is the same in most of the rows of both versions; "" for none.

    Looked for with the first rows of the earlier version.
    """
    schema, held = common_schema([before.schema, after.schema]), list[pa.RecordBatch]()
    for part in before.parts():
        held.append(fitted(part, schema))
        if sum(map(len, held)) >= _LOOKED_AT:
            break
    first, count, times = pa.Table.from_batches(held, schema), 0, dict[str, Indices]()
    values = {
        name: _comparable(first.column(name).combine_chunks())
        for name in by.compared(before.schema)
        if name in after.schema.names and not pa.types.is_nested(schema.field(name).type)
    }
    values = {name: own for name, own in values.items() if len(pc.unique(own)) == len(own)}
    for part in after.parts() if values else ():
        count += len(part)
        part = fitted(part, schema)
        for name, own in values.items():
            places = pc.index_in(_comparable(part.column(name)), own).drop_null().to_numpy()
            times[name] = times.get(name, 0) + np.bincount(places, minlength=len(own))
    shared = {name: own.sum() for name, own in times.items() if own.max(initial=0) < 2}
    best = max(shared, key=lambda name: shared[name], default="")
    return best if best and shared[best] > min(len(first), count) // 2 else ""
