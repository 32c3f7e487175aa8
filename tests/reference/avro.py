"""Records of Avro as fastavro reads them, one by one, as columns of Arrow."""

from __future__ import annotations

import io
from collections.abc import Sequence
from decimal import Context, Decimal
from typing import Any

import fastavro
import pyarrow as pa
from fastavro.schema import parse_schema

from dagflow.api.columns.column_values import with_leaves
from operators.reader.columns.avro_records import AvroRecords
from operators.reader.columns.avro_types import LISTS, RECORDS, AvroType
from operators.reader.columns.exact_casts import require_sound

STORED = "dagflow"
"""The logical type of bytes in a stored schema."""

_EXACT = Context(prec=77)


def read_by_fastavro(reader: AvroRecords, contents: Sequence[bytes], rows: Sequence[int]) -> pa.Table:
    """Read data blocks; texts may be none, but within others."""
    fastavro.read.LOGICAL_READERS.update({f"{kind}-{STORED}": _value for kind in ("bytes", "fixed")})
    schemas: Any = [parse_schema(stored(type)) for type in dict.fromkeys((reader.written, reader.wanted))]
    records = list[Any]()
    for content, count in zip(contents, rows, strict=True):
        file = io.BytesIO(content)
        records += [fastavro.schemaless_reader(file, *schemas) for _ in range(count)]
        if file.tell() < len(content):
            raise ValueError("some bytes are behind the last record")
    is_record = reader.wanted.kind in RECORDS and reader.wanted.members
    arrays = []
    for name, kind in zip(reader.schema.names, reader.schema.types, strict=True):
        values = [record[name] for record in records] if is_record else records
        arrays.append(pa.array(values, stored_type(kind)).cast(kind, safe=False))
    require_sound(arrays)
    return pa.table(arrays, names=reader.schema.names)


def stored_type(kind: pa.DataType) -> pa.DataType:
    """A type with bytes for text, and numbers for moments: of these Python knows those of 9,999 years."""

    def leaf_type(leaf: pa.DataType) -> pa.DataType:
        return pa.binary() if pa.types.is_string(leaf) else pa.int64() if pa.types.is_timestamp(leaf) else leaf

    return with_leaves(kind, leaf_type)


def stored(type: AvroType) -> Any:
    """A schema by which fastavro reads the same bytes as they are: texts as bytes, and numbers of times.

    A value of a union that is apart is a record of one member, which has the same bytes, and tells of which type it
    is.
    """
    parts = {inner: stored(inner) for inner in type.inner}
    for name, inner in type.members.items() if type.is_apart else ():
        fields = [{"name": name, "type": parts[inner]}]
        parts[inner] = {"type": "record", "name": f"n{inner.number}.member", "fields": fields}
    if type.kind == "union":
        return [*parts.values()]
    if type.kind in LISTS:
        (part,) = parts.values()
        is_map = type.kind == "map"
        return {"type": type.kind, "values": part["fields"][1]["type"]} if is_map else type.facts | {"items": part}
    facts = {key: value for key, value in type.facts.items() if key != "logicalType"}
    # Named anew at each place.
    facts["name"] = f"n{type.number}.{type.facts.get('name', '').rpartition('.')[2]}"
    if type.kind in RECORDS:
        types = zip(type.facts["fields"], parts.values(), strict=True)
        return facts | {"fields": [field | {"type": part} for field, part in types]}
    if type.kind in ("bytes", "fixed"):
        return facts | {"logicalType": STORED, "is_exact": pa.types.is_decimal(type.arrow)}
    return facts | {"type": "bytes" if type.kind == "string" else type.kind}


def _value(content: bytes, written: Any, wanted: Any) -> Any:
    facts = wanted or written
    if isinstance(facts, dict) and facts.get("is_exact"):
        return Decimal(int.from_bytes(content, "big", signed=True)).scaleb(-facts.get("scale", 0), _EXACT)
    return content
