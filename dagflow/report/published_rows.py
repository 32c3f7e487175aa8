"""Reads back what an app has published, in parts, and compares the rows of two versions of a table.

Rows are those of tables, Parquet and CSV, and the lines of other formats. Those of two versions are divided on the disk
by their identity, and compared part by part, so that memory does not grow with the tables.

Source:
    The join of two files that are partitioned by a hash of the keys: the GRACE hash join (Kitsuregawa et al., 1983).
"""

from __future__ import annotations

import csv
import io
import itertools
import json
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.capabilities import REMOVED
from dagflow.api.columns.column_values import readable_rows, readable_value
from dagflow.api.partitioning import hashes_of
from dagflow.api.transactions import RowOrigin
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.late import parquet as pq
from dagflow.storage.context import StorageContext
from dagflow.storage.files import PythonFile
from dagflow.storage.location import column_of

_CODECS = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd", ".lz4": "lz4"}
_PARQUET = b"PAR1"
_CSV = ".csv"
_INTEGERS = pa.decimal128(20)


def decompressed(path: str, data: bytes) -> bytes:
    """The content of a file, decompressed if its name shows a compression."""
    codec = _CODECS.get(Path(path).suffix)
    if codec is None or not data:
        return data
    return bytes(pa.CompressedInputStream(pa.BufferReader(data), codec).read())


def is_parquet(data: bytes) -> bool:
    return data.startswith(_PARQUET)


def partition_values(path: str) -> dict[str, str | None]:
    """The columns given by directories of a path, such as day=2026-01-01."""
    return dict(filter(None, map(column_of, path.split("/")[:-1])))


@frozen
class PublishedRows:
    """Rows that can be read any number of times, in parts.

    Attributes:
        parts: Reads them from the beginning.
    """

    schema: pa.Schema
    parts: Callable[[], Iterable[pa.RecordBatch]]

    @classmethod
    def of_stream(cls, stream: Callable[[], Any]) -> PublishedRows:
        """The rows of an object with Arrow's stream interface, such as Target.rows() returns; None has none."""

        def parts() -> pa.RecordBatchReader:
            found = stream()
            return pa.RecordBatchReader.from_stream(pa.table({}) if found is None else found)

        return cls(parts().schema, parts)

    @classmethod
    def together(cls, rows: Sequence[PublishedRows]) -> PublishedRows:
        """All rows, with the columns of each; a column that some lack is null in these."""
        schema = common_schema([each.schema for each in rows])
        return cls(schema, lambda: (fitted(part, schema) for each in rows for part in each.parts()))

    def where(self, column: str, values: pa.Array) -> PublishedRows:
        """The rows with one of some values in a column."""
        return PublishedRows(
            self.schema, lambda: (part.filter(pc.is_in(part.column(column), values)) for part in self.parts())
        )

    def count(self) -> int:
        return sum(map(len, self.parts()))


def common_schema(schemas: Iterable[pa.Schema]) -> pa.Schema:
    """The columns of all, each in a type that has the values of all."""
    kinds: dict[str, pa.DataType] = {}
    for field in itertools.chain.from_iterable(schemas):
        kinds[field.name] = _common(kinds.get(field.name, pa.null()), field.type)
    return pa.schema(kinds)


def _common(one: pa.DataType, other: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(other):
        return _common(one, other.value_type)
    # Arrow lacks functions for some encodings.
    other = {pa.string_view(): pa.string(), pa.binary_view(): pa.binary()}.get(other, other)
    if pa.types.is_nested(one) and pa.types.is_nested(other):
        return one if one == other else pa.string()
    if pa.types.is_decimal(one) or pa.types.is_decimal(other):
        one, other = (_INTEGERS if pa.types.is_integer(kind) else kind for kind in (one, other))
    try:
        pair = [pa.schema({"": kind}) for kind in (one, other)]
        return pa.unify_schemas(pair, promote_options="permissive").field(0).type
    except pa.ArrowTypeError:
        return pa.string()


def fitted(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The rows with the columns of a common schema."""

    def column(field: pa.Field) -> pa.Array:
        if field.name not in rows.schema.names:
            return pa.nulls(len(rows), field.type)
        own = rows.column(field.name)
        if own.type == field.type:
            return own
        return texts_of(own) if pa.types.is_nested(own.type) else own.cast(field.type, safe=False)

    return pa.RecordBatch.from_arrays([*map(column, schema)], schema=schema)


def texts_of(column: pa.Array) -> pa.Array:
    """Values as JSON."""
    return pa.array([json.dumps(readable_value(value), default=str) for value in column], pa.string())


def rows_of_files(storage: StorageContext, directory: str, urls: Sequence[str]) -> PublishedRows:
    """The rows of files below a directory; a line of a format without columns is a row with the column `line`."""

    def parts(url: str) -> Iterator[pa.RecordBatch]:
        return parts_of_file(storage, url, partition_values(url.removeprefix(directory)))

    return PublishedRows.together([PublishedRows(next(parts(url)).schema, partial(parts, url)) for url in urls])


def parts_of_file(storage: StorageContext, url: str, values: Mapping[str, str | None]) -> Iterator[pa.RecordBatch]:
    """The rows of a file, in parts of which the first one is empty.

    Args:
        values: Columns that the file lacks, each with its value in all rows.
    """
    with storage.open_file(url) as file:
        stream = PythonFile(file, is_holder=False)
        if not is_parquet(stream.read(len(_PARQUET))):
            stream.seek(0)
            table = _rows_of(decompressed(url, stream.read()), url)
            yield from (pa.RecordBatch.from_pylist([], table.schema), *table.to_batches())
            return
        with pq.ParquetFile(pa.PythonFile(stream, "r")) as parquet:
            missing = {name: value for name, value in values.items() if name not in parquet.schema_arrow.names}
            empty = pa.RecordBatch.from_pylist([], parquet.schema_arrow)
            for part in itertools.chain([empty], parquet.iter_batches()):
                for name, value in missing.items():
                    part = part.append_column(name, pa.array([value] * len(part), pa.string()))
                yield part


def _rows_of(data: bytes, path: str) -> pa.Table:
    if _CSV in Path(path).suffixes[-2:]:
        rows = csv.DictReader(io.StringIO(data.decode(errors="backslashreplace")))
        return pa.Table.from_pylist([*rows], pa.schema([(name, pa.string()) for name in rows.fieldnames or ()]))
    return pa.table({"line": pa.array(data.splitlines(), pa.binary())})


SAMPLED = 10
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
