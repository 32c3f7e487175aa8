"""Makes typed columns of columns of text, and refuses the records whose text is no value of its type."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from operators.reader.columns.literals import values_of, where_refused, why_not
from operators.reader.columns.types import ColumnType
from operators.reader.formats.base import Parsed, Rejects
from operators.reader.scanning.column_parsing import reject

_SHOWN_VALUE, _SHOWN_RECORD = 40, 120


def typed(parsed: Parsed, types: Mapping[str, ColumnType], null_words: Collection[str], rejects: Rejects) -> Parsed:
    """The columns with their types.

    Args:
        parsed: Records, with columns of text where types says that they have another type.
        types: The type of each column that has one; columns that have it already stay.
        null_words: Texts that stand for no value where the type is not text.
        rejects: Takes in the records that have text which is no value of its type.
    """
    if parsed.columns is None or not len(parsed.raw):
        return parsed
    arrays = {name: parsed.columns.column(name) for name in parsed.columns.schema.names}
    reasons: dict[int, str] = {}
    for name, kind in types.items():
        texts = arrays.get(name)
        if texts is None or texts.type == kind.arrow:
            continue
        texts = without_words(texts, null_words)
        arrays[name] = values = values_of(texts, kind)
        why: dict[str, str] = {}
        for row in np.flatnonzero(where_refused(texts, values)).tolist():
            text = texts[row].as_py()
            why[text] = why.get(text) or why_not(text, kind)
            reasons.setdefault(row, f"column '{name}' ({kind.name}): {shown(text)} {why[text]}")
    columns = pa.RecordBatch.from_pydict(arrays)
    if not reasons:
        return Parsed(parsed.raw, columns)
    for row, reason in sorted(reasons.items()):
        reject(parsed.raw, row, f"{reason}, in: {shortened(parsed.raw.record[row].as_py())}", rejects)
    kept = np.setdiff1d(np.arange(len(parsed.raw)), np.array(list(reasons), np.int64))
    raw = parsed.raw.take(kept)
    return Parsed(raw, columns.take(pa.array(kept)) if len(kept) else None)


def without_words(texts: Any, words: Collection[str]) -> Any:
    """Texts, with null for those that stand for no value."""
    if not words or (set(words) == {""} and not pc.any(pc.equal(pc.binary_length(texts), 0)).as_py()):
        return texts
    is_word = pc.is_in(texts, value_set=pa.array(list(words), pa.string()))
    return pc.if_else(is_word, pa.scalar(None, pa.string()), texts)


def shown(text: str) -> str:
    """A value as messages show it."""
    return repr(text if len(text) <= _SHOWN_VALUE else f"{text[: _SHOWN_VALUE - 1]}…")


def shortened(record: bytes) -> str:
    """A record as messages show it: one line, without its middle if it is long."""
    text = record[: 4 * _SHOWN_RECORD].decode(errors="replace")
    text = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)
    if len(text) <= _SHOWN_RECORD:
        return text
    end = record[-_SHOWN_RECORD:].decode(errors="ignore")
    end = "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in end)
    return f"{text[: _SHOWN_RECORD // 2]}…{end[-_SHOWN_RECORD // 2 :]}"
