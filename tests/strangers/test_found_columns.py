"""JSON with members as they come: a table is the same, however its input is cut, and a value is compared with it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagflow.engine.run import run
from dagflow.errors import MOST_LEVELS, DagflowError
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from tests.nightly import nightly
from tests.runs.table_kinds import KINDS, catalog, rows_of
from tests.strangers.fuzzing import seeds

Row = dict[str, Any]

DECIDED = ["infer", "{d: string}", "{i: int64}"]

APP = """\
name: found
attributes: {{checkpoint: {root}/journal}}
operators:
  splitter:
    class: FileSplitterInput
    properties: {{files: ["{root}/in"], block_size: {block}, batch_bytes: {batch}}}
  reader:
    class: BlockReader
    properties: {{format: {{type: json_lines, columns: {columns}}}, min_readers: {tasks}, max_readers: {tasks}}}
  table: {{class: TableWriter, properties: {{{table}{more}}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: table.input}}
"""


def arrive(root: Path, name: str, lines: list[str]) -> None:
    """Put a file of lines into the input."""
    (root / "in").mkdir(parents=True, exist_ok=True)
    (root / "in" / name).write_text("".join(f"{line}\n" for line in lines))


def publish(
    root: Path,
    kind: str = "delta",
    *,
    block: int = 1 << 20,
    batch: int = 0,
    tasks: int = 1,
    more: str = "",
    columns: str = "as_found",
    errors: bool = False,
    select: str = "",
) -> RunSnapshot:
    """Bring the input into a table, and what is refused into files."""
    table = f"table: '{kind}:{root}/table'"
    if kind == "iceberg":
        table = f"table: 'iceberg:shop.x', catalog: {json.dumps(catalog(root))}"
    text = APP.format(root=root, block=block, batch=batch, tasks=tasks, table=table, more=more, columns=columns)
    if errors:
        writer = (
            f'  errors: {{class: RecordWriter, properties: {{path: "{root}/errors"}}, partition: parallel}}\nstreams:'
        )
        text = text.replace("streams:", writer) + "  rejects: {from: reader.errors, to: errors.input}\n"
    if select:
        text = text.replace("  table:", f"  select: {{class: {select}}}\n  table:")
        text = text.replace("table.input", "select.input}\n  rows: {from: select.output, to: table.input")
    (root / "app.yaml").write_text(text)
    return run(load_app(str(root / "app.yaml")), runtime=InlineRuntime)


def held(root: Path, kind: str = "delta") -> list[Row]:
    """Return what a table holds, without nulls and places, by id."""
    # Of the data files: pyiceberg shows a null list of objects as an empty one.
    files = [*(root / "warehouse").rglob("*.parquet")] if kind == "iceberg" else []
    tables = [pq.read_table(file) for file in files] or [rows_of(root, kind)]
    rows = [without_nulls(row) for table in tables for row in table.to_pylist()]
    for row in rows:
        if "_rescued" in row:
            values = json.loads(row["_rescued"])
            row["_rescued"] = {name: value for name, value in values.items() if name not in ("_file", "_offset")}
    return sorted(rows, key=lambda row: int(row["i"]))


def without_nulls(value: Any) -> Any:
    """A value without members that are null."""
    if isinstance(value, dict):
        return {name: without_nulls(member) for name, member in value.items() if member is not None}
    return [without_nulls(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("cut", [{"block": 8, "tasks": 2}, pytest.param({}, marks=pytest.mark.nightly)])
@pytest.mark.parametrize(
    ("values", "columns"),
    [
        # An absent member is null, in the first of two records and in the second.
        (['{"x":1,"y":2}', '{"x":3}'], [{"x": 1, "y": 2}, {"x": 3}]),
        (['{"x":3}', '{"x":1,"y":2}'], [{"x": 3}, {"x": 1, "y": 2}]),
        # An empty or null list fits any list.
        (["[1]", "[]", "[null]"], [[1], [], [None]]),
        (["[]", "[null]", "[1]"], [[], [None], [1]]),
        (['[{"x":1}]', "[]", "[{}]"], [[{"x": 1}], [], [{}]]),
        # What has no type of its own decides nothing.
        (['{"x":null}', "{}", '{"x":1}'], [{}, {}, {"x": 1}]),
        (['{"x":[]}', '{"x":[[2.5]]}'], [{"x": []}, {"x": [[2.5]]}]),
        # Numbers are compared by their values.
        (["1", "2.5", "1.0"], [1.0, 2.5, 1.0]),
    ],
)
def test_a_value_fits_its_column_wherever_it_is_cut(
    kind: str, cut: dict[str, Any], values: list[str], columns: list[Any], tmp_path: Path
) -> None:
    """Both in one window, where all values decide, and with the later ones in a window of their own."""
    lines = [f'{{"i":{number},"d":{value}}}' for number, value in enumerate(values)]
    expected = [{"i": number, "d": value} for number, value in enumerate(columns)]
    arrive(tmp_path / "one", "a", lines)
    publish(tmp_path / "one", kind, **cut)
    assert held(tmp_path / "one", kind) == expected
    if values[0] not in ("[]", '{"x":null}', '{"x":[]}') and "2.5" not in values:
        arrive(tmp_path / "two", "a", lines[:1])
        publish(tmp_path / "two", kind, **cut)
        arrive(tmp_path / "two", "b", lines[1:])
        publish(tmp_path / "two", kind, **cut)
        assert held(tmp_path / "two", kind) == expected


@pytest.mark.parametrize("value", ["2.5", "[1]", pytest.param('{"x":1}', marks=pytest.mark.nightly)])
@pytest.mark.parametrize("block", [8, pytest.param(1 << 20, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("is_there", [False, True], ids=["new table", "table"])
def test_a_value_that_can_be_no_key_concerns_its_record_alone(
    value: str, block: int, is_there: bool, tmp_path: Path
) -> None:
    """Where a table is partitioned by it, it is rescued; where it identifies a row, its record is refused."""
    before, lines = '{"i":1,"d":1}', [f'{{"i":2,"d":{value}}}', '{"i":3}', '{"i":4,"d":1.0}']
    for name, more in (("parts", ", partition_by: d"), ("keys", ", upsert_by: d")):
        root = tmp_path / name
        arrive(root, "a", [before])
        if is_there:
            publish(root, more=more)
        arrive(root, "b", lines)
        if name == "keys":
            with pytest.raises(DagflowError, match=r"in/b offset 0: column 'd' \(int64\): .* does not fit into table"):
                publish(root, more=more, block=block)
            arrive(root, "b", lines[1:])
        publish(root, more=more, block=block)
    rest = [{"i": 3}, {"i": 4, "d": 1}]
    assert held(tmp_path / "parts") == [{"i": 1, "d": 1}, {"i": 2, "_rescued": {"d": json.loads(value)}}, *rest]
    assert held(tmp_path / "keys") == rest


@pytest.mark.parametrize("commit", ["{every_millis: 0}", "{bytes: 1000000}"], ids=["window", "group"])
@pytest.mark.parametrize("kind", ["delta", pytest.param("iceberg", marks=pytest.mark.nightly)])
def test_the_last_record_of_a_key_counts_whatever_columns_others_have(kind: str, commit: str, tmp_path: Path) -> None:
    """Records with the same columns do not come together, in front of others that were there before them."""
    more = {0: ',"x":1', 1: "", 2: ',"y":[2]', 3: ',"x":"text"'}
    lines = [f'{{"d":{number % 3},"i":{number}{more[number % 4]}}}' for number in range(30)]
    arrive(tmp_path, "a", lines)
    publish(tmp_path, kind, block=8, more=f", upsert_by: d, commit: {commit}")
    assert [row["i"] for row in held(tmp_path, kind)] == [27, 28, 29]


SELECTS = [
    ("Select, properties: {rename: {d: z}, drop: e}", "z"),
    ("Select, properties: {keep: [i, d], where: i >= 0}", "d"),
    ("Select, properties: {columns: {z: d, n: i + 1}, keep: i}", "z"),
    ('Sql, properties: {query: "select i, d as z from input"}', "z"),
]


@pytest.mark.parametrize(("operator", "name"), SELECTS)
@pytest.mark.parametrize("block", [8, 1 << 20])
def test_columns_that_a_select_passes_on_are_the_same_for_every_cut(
    operator: str, name: str, block: int, tmp_path: Path
) -> None:
    """What a reader has put aside follows its column under another name, and is dropped with it."""
    values = [("1", "[1]"), ('"x"', "2"), ('"y"', "3"), ("[]", "[]")]
    arrive(tmp_path, "a", [f'{{"i":{i},"d":{d},"e":{e}}}' for i, (d, e) in enumerate(values)])
    publish(tmp_path, block=block, select=operator)
    rows: list[Row] = [{"i": 0, "_rescued": {name: 1}}, {"i": 1, name: "x"}, {"i": 2, name: "y"}]
    expected = [*rows, {"i": 3, "_rescued": {name: []}}]
    assert [{key: value for key, value in row.items() if key != "n"} for row in held(tmp_path)] == expected


@pytest.mark.parametrize("value", ["[]", "{}", "[null]", '{"x":null}', '{"x":[]}', "null"])
def test_the_undecided_decides_no_type_for_later_windows(value: str, tmp_path: Path) -> None:
    """It is put aside as it is, and a later window gives its column the type."""
    arrive(tmp_path, "a", [f'{{"i":1,"d":{value}}}'])
    publish(tmp_path, more=", on_type_change: fail")
    rest = without_nulls(json.loads(value))
    first = {"i": 1} if rest is None else {"i": 1, "_rescued": {"d": rest}}
    assert held(tmp_path) == [first]
    arrive(tmp_path, "b", ['{"i":2,"d":{"x":[7]}}'])
    publish(tmp_path, more=", on_type_change: fail")
    assert held(tmp_path) == [first, {"i": 2, "d": {"x": [7]}}]


@pytest.mark.parametrize(
    ("kind", "mode", "column", "rescued", "ignored"),
    [
        ("delta", "add", {"x": 2, "y": {"z": "a"}}, None, 0),
        ("iceberg", "add", {"x": 2, "y": {"z": "a"}}, None, 0),
        ("parquet", "add", {"x": 2}, {"y": {"z": "a"}}, 0),
        ("delta", "rescue", {"x": 2}, {"y": {"z": "a"}}, 0),
        ("iceberg", "ignore", {"x": 2}, None, 1),
    ],
)
def test_a_new_member_of_a_struct_does_not_cost_the_others(
    kind: str, mode: str, column: Row, rescued: Row | None, ignored: int, tmp_path: Path
) -> None:
    """It is a new column of the struct where the table can have one; otherwise it alone is put aside, or left out."""
    arrive(tmp_path, "a", ['{"i":1,"d":{"x":1},"l":[{"x":1}]}'])
    publish(tmp_path, kind)
    arrive(tmp_path, "b", ['{"i":2,"d":{"x":2,"y":{"z":"a"}}}'])
    done = publish(tmp_path, kind, more=f", on_new_column: {mode}")
    second = {"i": 2, "d": column} | ({} if rescued is None else {"_rescued": {"d": rescued}})
    assert held(tmp_path, kind) == [{"i": 1, "d": {"x": 1}, "l": [{"x": 1}]}, second]
    assert sum(each.counts.get("ignored_values", 0) for each in done.operators) == ignored


def test_a_new_member_ends_the_run_where_the_app_says_so(tmp_path: Path) -> None:
    """The message names the column and the part."""
    arrive(tmp_path, "a", ['{"i":1,"d":{"x":1}}'])
    publish(tmp_path)
    arrive(tmp_path, "b", ['{"i":2,"d":{"x":2,"y":3}}'])
    with pytest.raises(DagflowError, match=r"no column for a part of 'd': \{'y': 3\}"):
        publish(tmp_path, more=", on_new_column: fail")


@pytest.mark.parametrize("depth", [32, 33, MOST_LEVELS - 1, MOST_LEVELS])
@pytest.mark.parametrize("columns", ["as_found", *(pytest.param(each, marks=pytest.mark.nightly) for each in DECIDED)])
def test_a_member_that_is_nested_too_deeply_ends_no_run(depth: int, columns: str, tmp_path: Path) -> None:
    """Its record is refused, or the member is not read; the other records arrive."""
    lines = ['{"i":1}', f'{{"i":2,"d":{"[" * depth}1{"]" * depth}}}', '{"i":3}']
    arrive(tmp_path, "a", lines)
    publish(tmp_path, columns=columns, errors=True)
    found = [row["i"] for row in held(tmp_path) if "i" in row] if columns != "{d: string}" else [1, 3]
    most = {"as_found": 32, "infer": 32, "{d: string}": 0, "{i: int64}": MOST_LEVELS - 1}[columns]
    assert found == ([1, 2, 3] if depth <= most else [1, 3])


VALUES = [None, True, 0, 1, -3, 2.5, 1.0, 2**53 + 1, 2**64, 1e300, "", "a", "1", [], {}, [None], {"x": None}]


def any_value(draw: random.Random, depth: int = 0) -> Any:
    """Return any value of JSON, nested up to three deep."""
    choice = draw.random()
    if depth == 3 or choice < 0.5:
        return draw.choice(VALUES)
    if choice < 0.75:
        return [any_value(draw, depth + 1) for _ in range(draw.randrange(4))]
    return {name: any_value(draw, depth + 1) for name in draw.sample("xyz", draw.randrange(4))}


def similar(draw: random.Random, value: Any) -> Any:
    """Return a value of nearly the same shape, as records of one source have."""
    if draw.random() < 0.1:
        return any_value(draw, 2)
    if isinstance(value, dict):
        return {name: similar(draw, member) for name, member in value.items() if draw.random() < 0.8}
    if isinstance(value, list):
        return [similar(draw, item) for item in value if draw.random() < 0.8]
    return value


def records(draw: random.Random) -> list[str]:
    """Return lines of objects whose members have few types."""
    models = {name: [any_value(draw) for _ in range(draw.choice([1, 1, 2]))] for name in "abc"}
    lines = []
    for number in range(draw.randrange(2, 14)):
        names = [name for name in models if draw.random() < 0.8]
        draw.shuffle(names)
        lines.append(json.dumps({"i": number, **{name: similar(draw, draw.choice(models[name])) for name in names}}))
    return lines


def split(draw: random.Random, lines: list[str], files: int) -> list[list[str]]:
    """Divide lines into files, in their order."""
    cuts = sorted(draw.randrange(len(lines) + 1) for _ in range(files - 1))
    return [lines[start:end] for start, end in zip([0, *cuts], [*cuts, len(lines)], strict=True)]


@pytest.mark.parametrize("kind", nightly(KINDS, "iceberg"))
def test_a_table_is_the_same_however_its_input_is_cut(kind: str, tmp_path: Path) -> None:
    """Block sizes, files, batches of small files and tasks make no difference to a table, new or not."""
    for seed in seeds(1):
        draw = random.Random(seed)
        before, lines = (records(draw) if draw.random() < 0.5 else []), records(draw)
        lines = [line.replace('{"i": ', '{"i": 10', 1) for line in lines]
        more = draw.choice(["", ", commit: {every_millis: 0}"]) if kind != "parquet" else ""
        more += draw.choice(["", "", ", on_new_column: rescue", ", on_new_column: ignore", ", on_type_change: rescue"])
        tables = []
        for number, (block, files, tasks) in enumerate(
            [(1 << 20, 1, 1), (draw.choice([16, 64, 200]), 1, draw.choice([1, 3])), (64, draw.choice([2, 5]), 2)]
        ):
            root = tmp_path / f"{seed}-{number}"
            if before:
                arrive(root, "a", before)
                publish(root, kind, more=more)
            for file, own in enumerate(split(draw, lines, files)):
                arrive(root, f"b{file}", own)
            publish(root, kind, block=block, batch=draw.choice([0, 1 << 20]), tasks=tasks, more=more)
            tables.append((rows_of(root, kind).schema.remove_metadata(), held(root, kind)))
        context = "\n".join([f"seed {seed}{more}", *before, "then", *lines])
        if kind == "parquet":  # only its files have columns, in their own order
            tables = [(pa.schema(sorted(schema, key=lambda field: field.name)), rows) for schema, rows in tables]
        assert types_of(tables[0][0]) == types_of(tables[1][0]) == types_of(tables[2][0]), context
        assert tables[0][1] == tables[1][1] == tables[2][1], context
        written = {int(row["i"]): row for row in map(json.loads, [*before, *lines])}
        if "ignore" not in more:
            for row in tables[0][1]:
                assert joined_again(row) == without_nulls(written[row["i"]]), context


def types_of(schema: pa.Schema) -> list[str]:
    """Names and types of columns."""
    return [f"{field.name} {field.type}".replace("large_", "") for field in schema]


def joined_again(row: Row) -> Row:
    """Return the record of a row, from its columns and what was put aside."""
    rest = row.pop("_rescued", {})
    return {name: joined(row.get(name), rest.get(name)) for name in [*row, *rest]}


def joined(value: Any, rest: Any) -> Any:
    """A value whose parts are in a column and in what was put aside."""
    if isinstance(value, dict) and isinstance(rest, dict):
        return {name: joined(value.get(name), rest.get(name)) for name in [*value, *rest]}
    if isinstance(value, list) and isinstance(rest, list):
        return [joined(one, other) for one, other in zip(value, rest, strict=True)]
    return rest if value is None else value
