"""Casts columns that have types to other types, and refuses the rows whose values do not fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import pyarrow as pa

from dagflow.api.columns.column_typing import type_name
from dagflow.late import compute as pc
from dagflow.storage.columns import is_ascii, parts_of
from operators.reader.columns.types import ColumnType
from operators.reader.columns.typing import shown, values_with_refused

Refusals = dict[int, tuple[str, str]]
"""The column for which a row is refused, and the reason, by rows."""


def plain_type(kind: pa.DataType) -> pa.DataType:
    """The type that values have in records: those of encoded or long forms of a type have the type itself."""
    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return plain_type(kind.storage_type)
    if types.is_dictionary(kind) or types.is_run_end_encoded(kind):
        return plain_type(kind.value_type)
    if types.is_large_string(kind) or types.is_string_view(kind):
        return pa.string()
    if types.is_decimal32(kind) or types.is_decimal64(kind):
        return pa.decimal128(kind.precision, kind.scale)
    if types.is_date64(kind):
        return pa.date32()
    if types.is_large_binary(kind) or types.is_binary_view(kind):
        return pa.binary()
    if types.is_map(kind):
        return pa.map_(plain_type(kind.key_type), plain_type(kind.item_type))
    if types.is_list(kind) or types.is_large_list(kind) or types.is_list_view(kind) or types.is_large_list_view(kind):
        return pa.list_(plain_type(kind.value_type))
    if types.is_struct(kind):
        return pa.struct([pa.field(field.name, plain_type(field.type)) for field in kind])
    return kind


def plain_schema(schema: pa.Schema) -> pa.Schema:
    """The columns with plain types, which say nothing but names and types."""
    return pa.schema([pa.field(field.name, plain_type(field.type)) for field in schema])


def plain_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """The rows with plain types."""
    schema = plain_schema(rows.schema)
    if schema.equals(rows.schema, check_metadata=True):
        return rows
    return pa.RecordBatch.from_arrays([*map(_plain, rows.columns, schema.types)], schema=schema)


def _plain(array: Any, kind: pa.DataType) -> Any:
    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage, kind)
    if isinstance(array, pa.DictionaryArray):
        return _plain(array.dictionary_decode(), kind)
    if pa.types.is_run_end_encoded(array.type):
        return _plain(pc.run_end_decode(array), kind)
    return array if array.type == kind else array.cast(kind)


def why_not_cast(field: pa.Field, kind: ColumnType) -> str:
    """Why no value of a column with a plain type can be of another type; "" if some can."""
    if field.type == kind.arrow or _is_text(field.type):
        is_nested = _is_text(field.type) and kind.is_nested
        return f"column '{field.name}' is text, and no text is {kind.name}" if is_nested else ""
    try:
        pa.array([], field.type).cast(kind.arrow)
    except pa.ArrowNotImplementedError:
        return f"column '{field.name}' is {type_name(field.type)}, which cannot be cast to {kind.name}"
    return ""


def cast_rows(rows: pa.RecordBatch, types: Mapping[str, ColumnType]) -> tuple[pa.RecordBatch, Refusals]:
    """Rows of plain types, with columns cast to other types; and the rows that do not fit.

    A column that the rows lack is null. The values of rows with reasons mean nothing.
    """
    if not types:
        return rows, {}
    arrays: list[Any] = []
    reasons: Refusals = {}
    for name, kind in types.items():
        if name not in rows.schema.names:
            arrays.append(pa.nulls(len(rows), kind.arrow))
            continue
        array, refused = cast_values(rows.column(name), kind)
        arrays.append(array)
        for row, why in refused.items():
            reasons.setdefault(row, (name, f"column '{name}' ({kind.name}): {why}"))
    return pa.RecordBatch.from_arrays(arrays, names=[*types]), reasons


def cast_values(values: Any, kind: ColumnType) -> tuple[Any, dict[int, str]]:
    """The values of a type, and the reasons of those that are not of it, by their rows."""
    if values.type == kind.arrow:
        return values, {}
    if _is_text(values.type):
        return values_with_refused(values, kind)
    try:
        return _exact_cast(values, kind.arrow), {}
    except pa.ArrowInvalid:
        pass
    parts: dict[int, Any] = {}
    reasons: dict[int, str] = {}
    pending = [range(len(values))]
    while pending:
        rows = pending.pop()
        try:
            parts[rows.start] = _exact_cast(values.slice(rows.start, len(rows)), kind.arrow)
        except pa.ArrowInvalid:
            if len(rows) > 1:
                pending += parts_of(rows)
                continue
            parts[rows.start] = pa.nulls(1, kind.arrow)
            reasons[rows.start] = f"{shown(str(values[rows.start].as_py()))} is not of this type, or would be rounded"
    return pa.concat_arrays([parts[start] for start in sorted(parts)]), reasons


def _exact_cast(values: Any, kind: pa.DataType) -> Any:
    """The values of another type, from which the same values come back; floating numbers are the nearest ones.

    Raises:
        pa.ArrowInvalid: A value would change, as a time that is cast to a day.
    """
    array = values.cast(kind)
    if pa.types.is_floating(kind) or pa.types.is_string(kind) or pa.types.is_nested(kind):
        return array
    try:
        back = array.cast(values.type)
    except pa.ArrowNotImplementedError:
        return array
    if not pc.all(pc.equal(back, values), min_count=0).as_py():
        raise pa.ArrowInvalid("a value would change")
    return array


def require_sound(columns: Iterable[Any]) -> None:
    """Refuse nested columns with damage, such as text that is not UTF-8: it is not found by rows.

    Raises:
        pa.ArrowInvalid: A column is damaged.
    """
    for column in columns:
        if pa.types.is_nested(column.type):
            column.validate(full=True)


_IN_COLUMN = re.compile(r"In column (\d+): (?:Invalid: )?")


def unsound_rows(rows: pa.RecordBatch) -> dict[int, str]:
    """The rows that are damaged, such as text that is not UTF-8, and why: bytes of a file are trusted once checked.

    Raises:
        pa.ArrowInvalid: The columns are damaged as such, so that no row can be looked at.
    """
    rows.validate()
    reasons: dict[int, str] = {}
    pending = [] if all(map(_is_plainly_sound, rows.columns)) else [range(len(rows))]
    while pending:
        part = pending.pop()
        try:
            rows.slice(part.start, len(part)).validate(full=True)
        except pa.ArrowInvalid as error:
            if len(part) > 1:
                pending += parts_of(part)
                continue
            text = " ".join(str(error).split())
            if found := _IN_COLUMN.match(text):
                text = f"column '{rows.schema.names[int(found[1])]}': {text[found.end() :]}"
            reasons[part.start] = text
    return dict(sorted(reasons.items()))


def _is_plainly_sound(column: Any) -> bool:
    """Whether a column is sound, as found by its bytes together: Arrow looks at each text, which takes far longer."""
    is_text = _is_text(column.type)
    values = column.view(pa.binary()) if is_text else column
    try:
        values.validate(full=True)
    except pa.ArrowInvalid:
        return False
    return not is_text or is_ascii(values)


def _is_text(kind: pa.DataType) -> bool:
    return bool(pa.types.is_string(kind))
