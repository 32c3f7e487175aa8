"""Every option of every format of rows, and the option `binary` of the formats of text; as format_cases.py."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet

from tests.operators.reader.formats.test_avro import record_of
from tests.operators.reader.formats.test_avro import written as avro_of
from tests.operators.reader.formats.test_excel import saved, workbook
from tests.runs.format_cases import FormatCase, as_json

ROWS: list[dict[str, Any]] = [{"a": row, "b": f"text {row}"} for row in range(5)]
CUTS = (97, 1 << 20)


def arrow_of(table: pa.Table) -> bytes:
    """A stream of two record batches."""
    out = io.BytesIO()
    with pa.ipc.new_stream(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=3)
    return out.getvalue()


def library_cases() -> list[FormatCase]:
    """Formats that pyarrow and fastavro read."""
    table, parquet, orc = pa.Table.from_pylist(ROWS), io.BytesIO(), io.BytesIO()
    pyarrow.parquet.write_table(table, parquet, row_group_size=2)
    pyarrow.orc.write_table(table, orc)
    avro = avro_of(record_of(a="long", b="string"), ROWS, sync_interval=20)
    files = {"parquet": parquet.getvalue(), "arrow": arrow_of(table), "orc": orc.getvalue(), "avro": avro}
    texts = as_json(*({"a": str(row["a"])} for row in ROWS))
    floats = as_json(*({"a": float(row["a"])} for row in ROWS))
    return [
        *(FormatCase({"type": name}, content, as_json(*ROWS), [], CUTS) for name, content in files.items()),
        *(
            FormatCase({"type": name, "columns": {"a": "string"}, "max_columns": 1}, content, texts, [], CUTS)
            for name, content in files.items()
        ),
        FormatCase({"type": "avro", "reader_schema": record_of(a="double")}, avro, floats, [], CUTS),
    ]


def excel_cases() -> list[FormatCase]:
    """Workbooks."""
    book = workbook(One=[["a", "b"], *([*row.values()] for row in ROWS)], Two=[["c"], ["x"], [None], ["NA"]])
    book["Two"].merge_cells("A2:A3")
    content = saved(book)
    tried: list[tuple[dict[str, Any], list[dict[str, Any]]]] = [
        ({}, ROWS),
        ({"columns": ["b"], "max_columns": 1}, [{"b": row["b"]} for row in ROWS]),
        ({"range": "A2:A3", "header": 0}, [{"A": 0}, {"A": 1}]),
        ({"sheet": "Two", "merged": "all", "null_values": ["NA"]}, [{"c": "x"}, {"c": "x"}]),
    ]
    return [
        FormatCase({"type": "excel", **options}, content, as_json(*rows), [], (4999, 1 << 20))
        for options, rows in tried
    ]


def text_cases() -> list[FormatCase]:
    """Files that begin as another kind, and are text."""
    lines = b"%PDF-1.7\n"
    plain: dict[str, tuple[dict[str, Any], bytes, bytes]] = {
        "lines": ({}, lines, lines),
        "escaped_lines": ({}, lines, lines),
        "csv": ({}, b"%PDF-1.7\n1\n", as_json({"%PDF-1.7": "1"})),
        "json_lines": ({}, b"{}\n", b"{}\n"),
        "paragraphs": ({}, lines, lines + b"\n"),
        "regex": ({"pattern": "%"}, lines, lines),
        "xml": ({"tag": "a"}, b"%PDF-1.7<a/>", b"<a/>\n"),
    }
    return [
        FormatCase({"type": name, "binary": "allow", **options}, content, published)
        for name, (options, content, published) in plain.items()
    ]


ROW_CASES = library_cases() + excel_cases() + text_cases()

_COLUMNS: list[tuple[dict[str, Any], str]] = [
    ({"columns": []}, "at least one column must be read"),
    ({"columns": {"a": "int65"}}, "there is no type 'int65'"),
    ({"max_columns": 0}, "expected at least 1; got"),
]
_WRONG: dict[str, list[tuple[dict[str, Any], str]]] = {
    **{name: _COLUMNS for name in ("parquet", "arrow", "orc", "avro", "excel")},
    **{
        name: [({"binary": "maybe"}, "'refuse' or 'allow'")] for name in ("lines", "escaped_lines", "csv", "json_lines")
    },
    "paragraphs": [({"binary": "maybe"}, "'refuse' or 'allow'")],
    "regex": [({"pattern": "x", "binary": "maybe"}, "'refuse' or 'allow'")],
    "xml": [({"tag": "a", "binary": "maybe"}, "'refuse' or 'allow'")],
}
_WRONG["avro"] = [*_COLUMNS, ({"reader_schema": "nothing"}, "reader_schema: ")]
_WRONG["excel"] = [
    *_COLUMNS,
    ({"sheet": 0}, "option 'sheet"),
    ({"range": "A"}, "range: 'A' is none"),
    ({"header": -1}, "expected at least 0; got"),
    ({"merged": "some"}, "'first' or 'all'"),
    ({"null_values": "NA"}, "list"),
]
ROW_MISUSES = [({"type": name, **options}, message) for name, wrong in _WRONG.items() for options, message in wrong]
