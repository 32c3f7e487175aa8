"""What is nested too deeply is refused with a reason: no recursion of Python ends."""

from __future__ import annotations

import functools
import io
import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import fastavro
import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet
import pytest

from dagflow.api.columns.column_values import ColumnValuesError, column_of
from dagflow.api.refused_records import Reject
from dagflow.errors import MOST_LEVELS, StorageError
from dagflow.plan.accumulators import results_of_windows
from dagflow.plan.load import load_app
from dagflow.telemetry.lineage import datasets_of
from operators.found_values import MAX_DEPTH
from operators.reader.columns.types import ColumnType
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.sink.tables.delta_log import refusals
from operators.sink.tables.delta_table import DeltaTable
from operators.testing import URL, MemorySource, block_of, read_cut


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 450, 3000])
@pytest.mark.parametrize("opening", ["list<", "struct<a: "])
def test_a_type_that_is_nested_too_deeply_is_refused(opening: str, levels: int) -> None:
    """One level less is a type."""
    with pytest.raises(ValueError, match=f"nested more than {MAX_DEPTH} levels deep"):
        ColumnType.of(opening * levels + "int64" + ">" * levels)
    assert ColumnType.of(opening * MAX_DEPTH + "int64" + ">" * MAX_DEPTH).arrow.num_fields == 1


@pytest.mark.parametrize("text", ["list<" * 5000, "decimal(" * 5000 + ")" * 5000])
def test_a_type_that_is_none_is_not_printed_whole(text: str) -> None:
    """Its beginning shows which one it is."""
    with pytest.raises(ValueError, match=r"has no closing bracket|there is no type") as caught:
        ColumnType.of(text)
    assert len(str(caught.value)) < 600


@pytest.mark.parametrize("levels", [MAX_DEPTH + 1, 450, 3000])
@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}], ids=["lists", "mappings"])
def test_a_value_nested_too_deeply_is_refused_with_its_record(wrap: Callable[[Any], Any], levels: int) -> None:
    """A value with one level less makes a column."""

    def nested(times: int) -> Any:
        return functools.reduce(lambda value, _: wrap(value), range(times), 1)

    assert len(column_of("x", [nested(MAX_DEPTH)])) == 1
    with pytest.raises(ColumnValuesError, match=f"record 2 is nested more than {MAX_DEPTH} levels deep"):
        column_of("x", [None, nested(levels)])


@pytest.mark.nightly
def test_a_chain_of_operators_is_followed_to_both_of_its_ends(tmp_path: Path) -> None:
    """However long it is: to the column that a column is made of, and to the output of a result."""
    names = [f"step{number}" for number in range(350)]
    operators = {
        "splitter": {"class": "FileSplitterInput", "properties": {"files": str(tmp_path)}},
        "reader": {"class": "BlockReader", "properties": {"format": {"type": "csv", "columns": {"a": "int64"}}}},
        "groups": {"class": "Aggregate", "properties": {"by": "a", "columns": {"n": "count(*)"}, "over": "window"}},
        **{name: {"class": "Select", "properties": {"where": "a > 0"}} for name in names},
        "writer": {"class": "RecordWriter", "properties": {"path": str(tmp_path / "out"), "format": "csv"}},
    }
    ends = ["reader.messages", *(f"{name}.output" for name in ("groups", *names))]
    inputs = [f"{name}.input" for name in ("groups", *names, "writer")]
    streams = {
        f"s{number}": {"from": end, "to": start} for number, (end, start) in enumerate(zip(ends, inputs, strict=True))
    }
    streams["blocks"] = {"from": "splitter.blocks_metadata_output", "to": "reader.blocks_metadata_input"}
    file = tmp_path / "app.yaml"
    attributes = {"checkpoint": str(tmp_path / "journal")}
    file.write_text(json.dumps({"name": "a", "attributes": attributes, "operators": operators, "streams": streams}))
    plan = load_app(file)
    assert results_of_windows(plan) == ["groups"]
    _, (output,) = datasets_of(plan, {"splitter": (("/in",), ()), "writer": ((), ("/out",))})
    facets: Any = output.facets
    (source,) = facets["columnLineage"].fields["a"].inputFields
    assert (source.name, source.field) == ("/in", "a")


def test_a_delta_table_nested_too_deeply_is_refused_in_one_line(tmp_path: Path) -> None:
    """With the reason of the library, and without its stack."""
    kind: Any = "long"
    for _ in range(60):
        kind = {"type": "struct", "fields": [{"name": "a", "nullable": True, "metadata": {}, "type": kind}]}
    metadata = {"id": "x", "format": {"provider": "parquet", "options": {}}, "schemaString": json.dumps(kind)}
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": {**metadata, "partitionColumns": [], "configuration": {}, "createdTime": 1}},
    ]
    log = tmp_path / "_delta_log"
    log.mkdir()
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    with (
        pytest.raises(StorageError, match=r"^[^\n]*too deeply nested[^\n]*\Z"),
        refusals(DeltaTable(str(tmp_path), ())),
    ):
        deltalake.DeltaTable(str(tmp_path)).schema()


def deep(levels: int, opening: str = "[", inside: str = "") -> str:
    """A JSON object whose member `a` is nested so many times, less the object itself."""
    closing = "".join({"[": "]", "{": "}"}[mark] for mark in reversed(opening) if mark in "[{")
    times = (levels - 1) // len(closing)
    return '{"a":' + opening * times + inside + closing * times + "}"


FORMS = [("[", ""), ('{"a":', "1"), ('[{"b":', "1"), ('["]]]}}}",', "1")]


@pytest.mark.parametrize(("opening", "inside"), FORMS)
@pytest.mark.parametrize("columns", [None, {"id": "int64"}, "as_found", "infer"])
def test_a_line_of_json_nested_too_deeply_is_refused_with_one_limit(opening: str, inside: str, columns: Any) -> None:
    """Wherever it is read from, and whatever becomes of its members; lines beside it are taken."""
    for levels in (MOST_LEVELS + 2, 450, 1000, 5000, 100_000):
        line = deep(levels, opening, inside)
        content = f'{{"id": 1}}\n{line}\n{{"id": 2}}\n'.encode()
        made = RECORD_FORMATS.make({"type": "json_lines", **({"columns": columns} if columns else {})})
        records, rejects = read_cut(made, content, len(content))
        assert (len(records), len(rejects)) == (2, 1), (levels, rejects)
        assert rejects[0][:2] == (10, len(line)), levels


def test_brackets_that_are_not_nested_are_no_levels() -> None:
    """Neither side by side, nor in strings, nor behind a quote that another line leaves open."""
    lines = [
        "{}",
        '{"a":"' + "[" * 5000 + '"}',
        '{"a":"\\"' + "[" * 5000 + '"}',
        '{"a":[' + ",".join(["[]"] * 5000) + "]}",
        deep(MOST_LEVELS),
        '{"a":"' + "[" * 5000 + "}",
        deep(MOST_LEVELS, '{"b":', "1"),
        '{"a":"' + "[]" * 5000 + '"}',
    ]
    content = "\n".join(lines).encode() + b"\n"
    records, rejects = read_cut(RECORD_FORMATS.make({"type": "json_lines"}), content, len(content))
    assert [record for _, record in records] == [line.encode() for line in lines if line is not lines[5]]
    assert len(rejects) == 1


@pytest.mark.parametrize("last", ["[" * 300 + "\\", "[" * 300 + '"', "[" * 300])
def test_a_line_without_an_end_is_refused_like_any_other(last: str) -> None:
    """Whatever its last byte is."""
    made = RECORD_FORMATS.make({"type": "json_lines", "keep_delimiter": True})
    records, rejects = read_cut(made, b"{}\n" + last.encode(), 1000)
    assert (len(records), len(rejects)) == (1, 1)


def written(format: str, rows: pa.Table) -> bytes:
    """A file with two columns, `id` and `a`, a list of lists of numbers."""
    out = io.BytesIO()
    if format == "parquet":
        pyarrow.parquet.write_table(rows, out)
    elif format == "orc":
        pyarrow.orc.write_table(rows, out)
    elif format == "arrow":
        with pa.ipc.new_file(out, rows.schema) as file:
            file.write_table(rows)
    else:
        kind: Any = "long"
        for _ in range(str(rows.schema.field("a").type).count("list")):
            kind = {"type": "array", "items": kind}
        fields = [{"name": "id", "type": "long"}, {"name": "a", "type": kind}]
        fastavro.writer(out, {"type": "record", "name": "r", "fields": fields}, rows.to_pylist())
    return out.getvalue()


def refusals_of(format: Any, content: bytes) -> tuple[int, list[str]]:
    """How many records a file has, and why others are refused."""
    rejects: list[bytes] = []
    made = RECORD_FORMATS.make(format)
    accounting = ByteAccounting(URL, Counter(), rejects.append)
    batches = list(made.read(MemorySource(content), block_of(content, 0, len(content)), accounting))
    return sum(map(len, batches)), [Reject.from_bytes(reject).reason for reject in rejects]


@pytest.mark.parametrize("format", ["parquet", "arrow", "orc", "avro"])
def test_a_column_nested_too_deeply_is_refused_and_can_be_left_out(format: str) -> None:
    """Formats with types have the limit of those without."""

    def rows(levels: int) -> bytes:
        value: Any = 1
        kind = pa.int64()
        for _ in range(levels):
            value, kind = [value], pa.list_(kind)
        return written(format, pa.table({"id": [1], "a": pa.array([value], kind)}))

    assert refusals_of(format, rows(MAX_DEPTH)) == (1, [])
    count, reasons = refusals_of(format, rows(MAX_DEPTH + 1))
    assert count == 0
    assert f"column 'a' is nested more than {MAX_DEPTH} levels deep; leave it out of columns" in reasons[0]
    assert refusals_of({"type": format, "columns": ["id"]}, rows(MAX_DEPTH + 1)) == (1, [])


def test_types_of_orc_that_are_nested_very_deeply_do_not_end_the_process() -> None:
    """They are refused before the library, which has no limit, looks at them."""

    def number(value: int) -> bytes:
        return bytes([value]) if value < 128 else bytes([value & 127 | 128]) + number(value >> 7)

    def field(place: int, value: int | bytes) -> bytes:
        if isinstance(value, int):
            return number(place << 3) + number(value)
        return number(place << 3 | 2) + number(len(value)) + value

    levels = 30_000
    outer = field(4, field(1, 12) + field(2, number(1)) + field(3, b"a"))
    lists = b"".join(field(4, field(1, 10) + field(2, number(at + 2))) for at in range(levels))
    footer = outer + lists + field(4, field(1, 4)) + field(6, 0)
    postscript = field(1, len(footer)) + field(2, 0) + field(8000, b"ORC")
    content = b"ORC" + footer + postscript + bytes([len(postscript)])
    count, reasons = refusals_of("orc", content)
    assert count == 0
    assert reasons == [f"the file cannot be read as ORC: its types are nested more than {MOST_LEVELS} levels deep"]
