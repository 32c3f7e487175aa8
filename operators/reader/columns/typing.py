"""Converts columns of text to typed columns, and refuses the records whose text is no value of its type."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import Field

from dagflow.api.records import RecordBatch
from dagflow.late import compute as pc
from dagflow.storage.columns import borders_of, parts_of
from operators.reader.columns.literals import reasons_of, values_of, where_refused
from operators.reader.columns.types import ColumnType, ColumnTypes, refuse_optional, schema_of
from operators.reader.formats.base import ByteAccounting, Parsed, RecordFormat


class TextColumns(RecordFormat):
    """Adds columns to a format whose records are text; name it before the class that finds the records.

    As in `class Labels(TextColumns, Lines)`. A subclass writes `values`, and gives `columns` a default if it knows
    them. A record is refused if it is not UTF-8, or has a value that is not of its column's type. The empty text is
    null in columns of other types.
    """

    columns: Annotated[
        ColumnTypes, Field(min_length=1, description="a type for each column, by its name, such as int64")
    ]

    def check_properties(self) -> None:
        super().check_properties()
        refuse_optional(self.columns)
        if nested := [(name, kind.name) for name, kind in self.columns.items() if kind.is_nested]:
            raise ValueError("columns: '{}' is {}, and texts hold no arrays and objects".format(*nested[0]))
        self.traits = self.traits.with_columns(schema_of(self.columns))

    @abstractmethod
    def values(self, text: str) -> Mapping[str, str | None]:
        """The text of each column of a record, by name; columns that are missing are null, and others are ignored.

        Called once for each record. It takes about a microsecond per record even if it does nothing; a faster class
        overrides `parse`.

        Raises:
            ValueError: The record is refused, for the reason that the error says.
        """

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        texts = valid_text(super().parse(batch, accounting).raw, accounting)
        rows, reasons = list[Mapping[str, str | None]](), dict[int, str]()
        for row, record in enumerate(texts.to_pylist()):
            try:
                rows.append(self.values(record.decode()))
            except ValueError as error:
                reasons[row] = str(error)
        kept = without_refused(texts, in_records(reasons, texts), accounting)
        arrays = {name: pa.array([row.get(name) for row in rows], pa.string()) for name in self.columns}
        return typed(Parsed(kept, pa.RecordBatch.from_pydict(arrays)), self.columns, ("",), accounting)


Parse = Callable[[RecordBatch], pa.Table]
ParseFew = Callable[[RecordBatch], tuple[pa.Table, dict[int, str]]]

_FEW, _MANY = 1000, 10_000
"""Records that are parsed one by one if they cannot be parsed together: many where most of those before were refused,
because each try costs as much as a record that is right."""


class RowRejects(ByteAccounting):
    """Takes in rejects of records whose offset is their position in a batch.

    Args:
        refuses_skipped: Whether records that are skipped count as refused.
    """

    def __init__(self, *, refuses_skipped: bool = True) -> None:
        super().__init__()
        self.reasons: dict[int, str] = {}
        self._refuses_skipped = refuses_skipped

    def skip_records(self, offsets: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64], reason: str) -> None:
        if self._refuses_skipped:
            self.reasons.update(dict.fromkeys(offsets.tolist(), reason))

    def reject_ranges(
        self, offsets: Sequence[int], lengths: Sequence[int], reasons: Sequence[str], raws: Sequence[bytes]
    ) -> None:
        self.reasons.update(zip(offsets, reasons, strict=True))


def parse_columns(
    batch: RecordBatch, parse: Parse, rejects: ByteAccounting, parse_few: ParseFew | None = None
) -> Parsed:
    """Parse records together; if that fails, divide them until each record that fails is alone, or among few.

    parse gives one row per record of a batch, or raises pyarrow.ArrowInvalid. parse_few parses a few records one by
    one: it gives the rows of those that can be parsed, and the reasons of the others by their position.
    """
    tables: list[pa.Table] = []
    kept: list[int] = []
    are_refused = False
    pending = [range(len(batch))] if len(batch) else []
    while pending:
        rows = pending.pop()
        part = batch if len(rows) == len(batch) else batch.slice(rows.start, len(rows))
        reasons: dict[int, str] = {}
        table = None
        if not are_refused or len(rows) > _MANY:
            try:
                table = parse(part)
            except pa.ArrowInvalid as error:
                if len(rows) > (1 if parse_few is None else _FEW):
                    pending += reversed(parts_of(rows))
                    continue
                reasons[0] = _plain(error)
        if table is None and parse_few is not None:
            table, reasons = parse_few(part)
            are_refused = 2 * len(reasons) > len(rows)
        if table is not None:
            tables.append(table)
        without_refused(part, reasons, rejects)
        kept += (row for row in rows if row - rows.start not in reasons)
    if not kept:
        return Parsed(batch.take(np.empty(0, np.int64)))
    raw = batch if len(kept) == len(batch) else batch.take(np.array(kept, np.int64))
    return Parsed(raw, pa.concat_tables(tables).combine_chunks().to_batches()[0])


def valid_text(batch: RecordBatch, rejects: ByteAccounting) -> RecordBatch:
    """The records that are valid UTF-8; the others are refused."""
    if _is_text(batch.framed()):
        return batch
    reasons: dict[int, str] = {}
    for index, record in enumerate(batch.to_pylist()):
        try:
            record.decode()
        except UnicodeDecodeError as error:
            reasons[index] = why_not_text("utf-8", error, " of the record")
    return without_refused(batch, reasons, rejects)


def _is_text(records: pa.BinaryArray) -> bool:
    """Whether all are UTF-8 together, and none begins within a character; may be false where there are empty ones."""
    borders, content = borders_of(records), records.buffers()[2]
    data = np.frombuffer(b"" if content is None else content, np.uint8)[: int(borders[-1])]
    if data[borders[0] :].max(initial=0) < 0x80:
        return True
    whole = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(borders[[0, -1]]), content])
    try:
        whole.cast(pa.string())
    except pa.ArrowInvalid:
        return False
    return not ((data.take(borders[:-1], mode="clip") & 0xC0) == 0x80).any()


_LETTER = re.compile(rb"[A-Za-z]")


def why_not_text(charset: str, error: UnicodeDecodeError, what: str) -> str:
    """Why the bytes of a record or a header are no text of a charset.

    Where the first bad byte is a letter within a word in a Western encoding, the reason names that.
    """
    data, start, fitting = bytes(error.object), error.start, ""
    if charset == "utf-8" and _LETTER.search(data, max(start - 1, 0), start + 2):
        western = "cp1252" if any(0x80 <= byte < 0xA0 for byte in data) else "latin-1"
        if data[start : start + 1].decode(western, "replace").isalpha():
            fitting = f"; it is text in {western}, as encoding: {western} says"
    return f"not valid {charset}: {error.reason} at byte {start}{what}{fitting}"


def without_refused(batch: RecordBatch, reasons: Mapping[int, str], rejects: ByteAccounting) -> RecordBatch:
    """Refuse records of a batch, all at once, and return the others."""
    if not reasons:
        return batch
    rows = sorted(reasons)
    refused = batch if len(rows) == len(batch) else batch.take(np.array(rows, np.int64))
    rejects.reject_all(refused.offsets().tolist(), refused.to_pylist(), [*map(reasons.__getitem__, rows)])
    return batch.take(np.delete(np.arange(len(batch)), rows))


def without_skipped(
    batch: RecordBatch, is_skipped: npt.NDArray[np.bool_], reason: str, accounting: ByteAccounting
) -> RecordBatch:
    """Skip records of a batch, all at once, and return the others."""
    if not is_skipped.any():
        return batch
    lengths = np.diff(borders_of(batch.framed())).astype(np.int64) - batch.delimiters.lengths()
    accounting.skip_records(batch.offsets()[is_skipped], lengths[is_skipped], reason)
    return batch.take(np.flatnonzero(~is_skipped))


def _plain(error: Any) -> str:
    text = str(error).rstrip(".")
    # An abbreviation, such as JSON at the beginning of an error of Arrow's, keeps its capitals.
    return text if text[:2].isupper() else text[:1].lower() + text[1:]


_SHOWN_VALUE, _SHOWN_RECORD = 40, 120


def typed(
    parsed: Parsed, types: Mapping[str, ColumnType], null_words: Collection[str], rejects: ByteAccounting
) -> Parsed:
    """The columns with their types.

    Columns that have their type already stay; the others are text. Null words stand for no value where the type is not
    text.
    """
    if parsed.columns is None or not len(parsed.raw):
        return Parsed(parsed.raw)
    arrays = {name: parsed.columns.column(name) for name in parsed.columns.schema.names}
    reasons: dict[int, str] = {}
    for name, kind in types.items():
        texts = arrays.get(name)
        if texts is None or texts.type == kind.arrow:
            continue
        arrays[name], refused = values_with_refused(without_words(texts, null_words), kind)
        beginning = f"column '{name}' ({kind.name}): "
        reasons = {row: beginning + why for row, why in refused.items()} | reasons
    reasons = in_records(reasons, parsed.raw) if reasons else {}
    return accepted(parsed.raw, pa.RecordBatch.from_pydict(arrays), reasons, rejects)


def accepted(
    batch: RecordBatch, columns: pa.RecordBatch, reasons: Mapping[int, str], rejects: ByteAccounting
) -> Parsed:
    """Refuse records of a batch for the reasons that their positions have, and return the others with their columns."""
    if not reasons:
        return Parsed(batch, columns)
    raw = without_refused(batch, reasons, rejects)
    kept = np.delete(np.arange(len(columns)), [*reasons])
    return Parsed(raw, columns.take(pa.array(kept)) if len(kept) else None)


def shown(text: str) -> str:
    return repr(text if len(text) <= _SHOWN_VALUE else f"{text[: _SHOWN_VALUE - 1]}…")


def all_shown(texts: Sequence[str]) -> Iterable[str]:
    return map(shown, texts)


def values_with_refused(
    texts: Any, kind: ColumnType, show: Callable[[Sequence[str]], Iterable[str]] = all_shown
) -> tuple[pa.Array, dict[int, str]]:
    """The values of texts, and for each row with text that is no value the reason.

    In texts that are arrays or objects, text stands for the values of other types; show gives texts as reasons show
    them.
    """
    if texts.type == kind.arrow:
        return texts, {}
    if not kind.is_nested:
        return _plain_values(texts, kind, show)
    is_null = texts.is_null()
    if pa.types.is_list(kind.arrow):
        inner, refused = values_with_refused(texts.flatten(), ColumnType("", kind.arrow.value_type), show)
        rows = pc.list_parent_indices(texts)
        lengths = pc.fill_null(texts.value_lengths(), 0).to_numpy()
        borders = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int32)
        array = pa.ListArray.from_arrays(pa.array(borders), inner, kind.arrow, mask=is_null)
        return array, {rows[at].as_py(): why for at, why in reversed(refused.items())}
    members: list[pa.Array] = []
    reasons: dict[int, str] = {}
    for field, part in zip(kind.arrow, texts.flatten(), strict=True):
        inner, refused = values_with_refused(part, ColumnType("", field.type), show)
        members.append(inner)
        reasons |= {row: f"member '{field.name}': {why}" for row, why in refused.items() if row not in reasons}
    return pa.StructArray.from_arrays(members, fields=list(kind.arrow), mask=is_null), reasons


def _plain_values(
    texts: Any, kind: ColumnType, show: Callable[[Sequence[str]], Iterable[str]]
) -> tuple[pa.Array, dict[int, str]]:
    values = values_of(texts, kind)
    rows = np.flatnonzero(where_refused(texts, values))
    if not len(rows):
        return values, {}
    refused = texts.take(pa.array(rows)).dictionary_encode()
    different = refused.dictionary.to_pylist()
    named = [f"{text} {why}" for text, why in zip(show(different), reasons_of(different, kind), strict=True)]
    return values, dict(zip(rows.tolist(), map(named.__getitem__, refused.indices.to_pylist()), strict=True))


def without_words(texts: Any, words: Collection[str]) -> Any:
    """Texts, with null for those that stand for no value; a column of another type stays."""
    if not words or not pa.types.is_string(texts.type) or (set(words) == {""} and not _has_empty(texts)):
        return texts
    is_word = pc.is_in(texts, value_set=pa.array(list(words), pa.string()))
    return pc.if_else(is_word, pa.scalar(None, pa.string()), texts)


def _has_empty(texts: Any) -> bool:
    borders = borders_of(texts)
    return bool((borders[1:] == borders[:-1]).any())


def in_records(reasons: Mapping[int, str], batch: RecordBatch) -> dict[int, str]:
    """Reasons by the position of their record, with the records as messages show them."""
    rows = sorted(reasons)
    records = (batch if len(rows) == len(batch) else batch.take(np.array(rows, np.int64))).to_pylist()
    return {row: f"{reasons[row]}, in: {text}" for row, text in zip(rows, all_shortened(records), strict=True)}


def all_shortened(records: Sequence[bytes]) -> list[str]:
    if max(map(len, records), default=0) <= _SHOWN_RECORD:
        # Most records are short and printable, and are decoded together.
        texts = b"\n".join(records).decode(errors="replace").split("\n")
        if len(texts) == len(records) and "".join(texts).isprintable():
            return texts
    return [*map(shortened, records)]


def shortened(record: bytes) -> str:
    """A record as messages show it: one line, without its middle if it is long."""
    text = record[: 4 * _SHOWN_RECORD].decode(errors="replace")
    text = _printable(text)
    if len(text) <= _SHOWN_RECORD:
        return text
    end = _printable(record[-_SHOWN_RECORD:].decode(errors="ignore"))
    return f"{text[: _SHOWN_RECORD // 2]}…{end[-_SHOWN_RECORD // 2 :]}"


def _printable(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
