"""Tables that an app writes, as a reader of the format sees them."""

from __future__ import annotations

import datetime as dt
import importlib.util
import itertools
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from deltalake import DeltaTable, Field, Schema
from deltalake.schema import PrimitiveType

from dagflow import InputPort, Operator, OutputPort, RecordBatch
from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from operators import BlockReader, FileSplitterInput
from operators.sink.table_writer import TableWriter
from tests.engine.dags import Given, dag
from tests.engine.sample_app import TextSource
from tests.execution.sample_operators import TextSample

BATCHES: dict[str, pa.RecordBatch] = {}
UTC = dt.UTC


class EmitsNamedBatch(Operator):
    """Emits the batch that a sample's text names."""

    samples = InputPort(TextSample)
    output = OutputPort()

    @samples.each
    def take(self, sample: TextSample) -> None:
        """Emit it."""
        self.output.emit(RecordBatch(BATCHES[sample.text.decode()]))


def app(root: Path, batches: Sequence[pa.RecordBatch], **properties: Any) -> LogicalPlan:
    """Batches, one in each window, that become rows of a table."""
    names = [f"{len(BATCHES) + number}" for number, _ in enumerate(batches)]
    BATCHES.update(zip(names, batches, strict=True))
    writer = TableWriter(**{"table": f"delta:{root / 'table'}", **properties})
    operators: dict[str, Given] = {
        "source": TextSource(texts=[name.encode() for name in names], per_window=1),
        "typed": (EmitsNamedBatch(), 1),
        "table": (writer, "parallel"),
    }
    return dag(root, operators, ["source.out typed.samples", "typed.output table.input"])


def write(root: Path, *batches: pa.RecordBatch, **properties: Any) -> pa.Table:
    """Run an app over batches; return what the table then has."""
    run(app(root, batches, **properties), runtime=InlineRuntime)
    return read(root)


def read(root: Path) -> pa.Table:
    """The rows of the table."""
    return pa.table(DeltaTable(str(root / "table")).to_pyarrow_table())


def made(root: Path, *fields: Field, partition_by: Iterable[str] = ()) -> None:
    """Make a table as another program does."""
    DeltaTable.create(str(root / "table"), Schema(list(fields)), partition_by=list(partition_by))


def columns(**values: Any) -> pa.RecordBatch:
    """A batch of arrays, or of values whose types pyarrow finds."""
    return pa.RecordBatch.from_pydict(values)


DAY, NOON = dt.date(2026, 5, 17), dt.datetime(2026, 5, 17, 12, 0, 0, 123457)
TYPES: list[tuple[pa.Array, pa.DataType, list[Any]]] = [
    *(
        (pa.array([1, None], kind), kind, [1, None])
        for kind in (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64())
    ),
    (pa.array([255], pa.uint8()), pa.int16(), [255]),
    (pa.array([2**16 - 1], pa.uint16()), pa.int32(), [2**16 - 1]),
    (pa.array([2**32 - 1], pa.uint32()), pa.int64(), [2**32 - 1]),
    (pa.array([2**64 - 1], pa.uint64()), pa.decimal128(20, 0), [Decimal(2**64 - 1)]),
    (pa.array([1.5], pa.float16()), pa.float32(), [1.5]),
    (pa.array([True, False, None]), pa.bool_(), [True, False, None]),
    *((pa.array(["ä", ""], kind), pa.string(), ["ä", ""]) for kind in (pa.string(), pa.large_string())),
    *((pa.array([b"\xff"], kind), pa.binary(), [b"\xff"]) for kind in (pa.binary(), pa.large_binary(), pa.binary(1))),
    (pa.array(["x", None]).dictionary_encode(), pa.string(), ["x", None]),
    (pa.array([Decimal("-1.20")], pa.decimal128(9, 2)), pa.decimal128(9, 2), [Decimal("-1.20")]),
    (pa.array([Decimal(10**37)], pa.decimal128(38, 0)), pa.decimal128(38, 0), [Decimal(10**37)]),
    (pa.array([DAY], pa.date32()), pa.date32(), [DAY]),
    (pa.array([DAY], pa.date64()), pa.date32(), [DAY]),
    (pa.array([NOON], pa.timestamp("us")), pa.timestamp("us"), [NOON]),
    (pa.array([NOON], pa.timestamp("ns")), pa.timestamp("us"), [NOON]),
    (
        pa.array([NOON.replace(tzinfo=UTC)], pa.timestamp("us", "Europe/Paris")),
        pa.timestamp("us", "UTC"),
        [NOON.replace(tzinfo=UTC)],
    ),
    (pa.array([dt.time(1, 2, 3, 4)]), pa.string(), ["01:02:03.000004"]),
    (pa.array([[1, None], None], pa.large_list(pa.uint8())), pa.list_(pa.int16()), [[1, None], None]),
    (pa.array([{"a": [1]}]), pa.struct([("a", pa.list_(pa.int64()))]), [{"a": [1]}]),
    (
        pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64())),
        pa.map_(pa.string(), pa.int64()),
        [[("k", 1)]],
    ),
]


def test_each_type_is_read_back_as_the_nearest_of_the_table(tmp_path: Path) -> None:
    """No value changes; a type that the format lacks becomes a wider one, and a time of day text."""
    length = max(len(array) for array, _, _ in TYPES)
    padded = {
        f"c{n}": pa.concat_arrays([array, pa.nulls(length - len(array), array.type)])
        for n, (array, _, _) in enumerate(TYPES)
    }
    found = write(tmp_path, columns(**padded))
    for name, (given, kind, values) in zip(padded, TYPES, strict=True):
        column = found[name].cast(kind)
        assert found.schema.field(name).type.equals(column.type, check_metadata=False), f"{given.type}"
        assert column.to_pylist() == values + [None] * (length - len(values)), f"{given.type}"


@pytest.mark.parametrize(
    ("array", "reason"),
    [
        (pa.array([1], pa.duration("s")), r"column 'c': Delta has no type for duration\[s\]"),
        (pa.array([Decimal(1)], pa.decimal256(50, 0)), r"column 'c': Delta has no type for decimal256\(50, 0\)"),
        (
            pa.array([1001], pa.timestamp("ns")),
            r"column 'c' does not fit timestamp\[us\].* would lose data: 1001",
        ),
    ],
)
def test_what_has_no_type_is_an_error_that_names_the_column(tmp_path: Path, array: pa.Array, reason: str) -> None:
    """Nothing is committed."""
    with pytest.raises(DagflowError, match=reason):
        write(tmp_path, columns(c=array), on_type_change="fail")
    assert not DeltaTable.is_deltatable(str(tmp_path / "table"))


def test_records_are_given_the_types_of_a_table_that_is_there(tmp_path: Path) -> None:
    """Narrower numbers, smaller decimals, bytes that are text; in any order, and some columns left out."""
    kinds = {"i": "long", "d": "double", "m": "decimal(12,3)", "s": "string", "t": "timestamp", "x": "integer"}
    made(tmp_path, *(Field(name, PrimitiveType(kind)) for name, kind in kinds.items()))
    found = write(
        tmp_path,
        columns(
            t=pa.array([NOON.replace(tzinfo=UTC)], pa.timestamp("us", "Asia/Tokyo")),
            s=pa.array([b"text"]),
            m=pa.array([Decimal("1.20")], pa.decimal128(9, 2)),
            d=pa.array([7], pa.int16()),
            i=pa.array([1], pa.int32()),
            nothing=pa.nulls(1),
        ),
        columns(x=pa.array([5], pa.int64())),
    )
    assert sorted(found.to_pylist(), key=str) == sorted(
        [
            {"i": 1, "d": 7.0, "m": Decimal("1.200"), "s": "text", "t": NOON.replace(tzinfo=UTC), "x": None},
            {"i": None, "d": None, "m": None, "s": None, "t": None, "x": 5},
        ],
        key=str,
    )


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (columns(n=pa.array([2**40])), "column 'n' does not fit int32 of table delta:.*not in range"),
        (columns(n=pa.array(["1"])), "column 'n' is string, and int32 in table delta:"),
        (columns(f=pa.array([0.1])), "column 'f' is double, and float in table delta:"),
        (columns(s=pa.array([b"\xff"])), "column 's' does not fit string of table delta:.*nvalid UTF8"),
        (
            columns(n=pa.array([1], pa.int32()), more=pa.array([1])),
            "has no column 'more' for int64; it has n, f, s, must",
        ),
        (columns(n=pa.array([1], pa.int32()), must=pa.array([None], pa.int64())), "column 'must': .* allows no null"),
    ],
)
def test_what_does_not_fit_a_table_is_an_error(tmp_path: Path, batch: pa.RecordBatch, reason: str) -> None:
    """It says which column and why; the table stays as it is."""
    fields = [Field(name, PrimitiveType(kind)) for name, kind in (("n", "integer"), ("f", "float"), ("s", "string"))]
    made(tmp_path, *fields, Field("must", PrimitiveType("long"), nullable=False))
    if "must" not in batch.schema.names:
        batch = batch.append_column("must", pa.array([1]))
    with pytest.raises(DagflowError, match=reason):
        write(tmp_path, batch, on_new_column="fail", on_type_change="fail")
    assert read(tmp_path).num_rows == 0


VALUES: list[pa.Array] = [
    pa.array(["DE", None, "a/b", "ü ?%41", "..", "DE", "_x", "2026-01-01", "a=b+c", "tab\t\n", "日本", "x" * 250]),
    pa.array([True, False, None]),
    pa.array([3, -1, None]),
    pa.array([DAY, None]),
    pa.array([NOON, None]),
    pa.array([NOON.replace(tzinfo=UTC)], pa.timestamp("us", "UTC")),
    pa.array([Decimal("1.20"), None], pa.decimal128(9, 2)),
]


@pytest.mark.parametrize("keys", VALUES, ids=lambda keys: str(keys.type))
def test_rows_are_partitioned_by_any_values(tmp_path: Path, keys: pa.Array) -> None:
    """Each row is read back with its own value, whatever characters it has; a filter finds it."""
    batch = columns(key=keys, n=pa.array(range(len(keys))))
    found = write(tmp_path, batch, batch.slice(1), partition_by="key")
    expected = [*zip(keys.to_pylist(), range(len(keys)), strict=True)]
    assert sorted(zip(found["key"].to_pylist(), found["n"].to_pylist(), strict=True), key=str) == sorted(
        expected + expected[1:], key=str
    )
    assert found.schema.names == ["n", "key"]
    assert DeltaTable(str(tmp_path / "table")).metadata().partition_columns == ["key"]
    assert found.schema.field("key").type == keys.type


def test_a_table_is_partitioned_by_several_columns(tmp_path: Path) -> None:
    """A file for each combination that occurs in a window; a table's own partitioning is taken."""
    batch = columns(a=["x", "y", "x", "x"], b=[1, 1, 2, 1], n=[1, 2, 3, 4])
    write(tmp_path, batch, partition_by=["a", "b"])
    assert len(DeltaTable(str(tmp_path / "table")).file_uris()) == 3
    found = write(tmp_path, batch, batch, columns(n=[5]))  # the source is behind the first one
    assert sorted(found["n"].to_pylist()) == [1, 1, 2, 2, 3, 3, 4, 4, 5]
    assert found.filter(pc.field("a") == "x").sort_by("n")["n"].to_pylist() == [1, 1, 3, 3, 4, 4]


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"partition_by": "f"}, "cannot be partitioned by column 'f', whose values are float"),
        ({"partition_by": "m"}, "no type is known yet of the column 'm' of partition_by.*; they have f, s"),
    ],
)
def test_a_bad_partitioning_is_an_error(tmp_path: Path, properties: dict[str, Any], reason: str) -> None:
    """Nothing is committed."""
    with pytest.raises(DagflowError, match=reason):
        write(tmp_path, columns(f=[0.5], s=["x"]), **properties)


def test_bounds_of_files_are_true(tmp_path: Path) -> None:
    """No reader that skips files by them misses a row: of long texts, parts of seconds, and any numbers."""
    texts = ["b" * 100, "a", "z" * 65]  # longer than a bound
    lasts = [chr(0x10FFFF) * 64 + "x", chr(0x10FFFF) * 70, "a"]
    ends = [dt.datetime.max, dt.datetime.min, NOON]
    times = [dt.datetime(1969, 12, 31, 23, 59, 59, 999_999), dt.datetime(2026, 1, 1, 0, 0, 0, 1), NOON]
    amounts = [Decimal("12345678901234567890123456789012345.678"), Decimal("-0.001"), Decimal(0)]
    batch = columns(
        s=texts,
        t=pa.array(times, pa.timestamp("us")),
        d=pa.array(amounts, pa.decimal128(38, 3)),
        f=[-0.0, 1e300, -5e-324],
        r=pa.array([0.1, -0.25, 0.0], pa.float32()),
        o=[False, None, True],
        l=lasts,
        e=pa.array(ends, pa.timestamp("us")),
        z=pa.array([each.replace(tzinfo=UTC) for each in ends], pa.timestamp("us", "UTC")),
        n=pa.nulls(3, pa.float64()),
    )
    write(tmp_path, batch)
    [file] = pa.table(DeltaTable(str(tmp_path / "table")).get_add_actions(flatten=True)).to_pylist()
    assert file["num_records"] == 3 and file["min.s"] == "a"
    assert file["max.s"] >= max(texts) and len(file["max.s"]) < 70
    assert file["min.t"] <= min(times) and max(times) <= file["max.t"]
    assert (file["min.d"], file["max.d"]) == (min(amounts), max(amounts))
    assert (file["min.f"], file["max.f"], file["min.o"], file["max.o"]) == (-5e-324, 1e300, False, True)
    assert file["max.l"] >= max(lasts) and file["max.e"] >= max(ends) and file["min.e"] <= min(ends)
    assert file["max.z"] >= ends[0].replace(tzinfo=UTC)
    rows = DeltaTable(str(tmp_path / "table")).to_pyarrow_dataset()
    for name, value in itertools.chain(*(row.items() for row in batch.to_pylist())):
        given = pa.scalar(value, batch.schema.field(name).type)
        chosen = pc.field(name) == given if given.is_valid else pc.field(name).is_null()
        assert rows.count_rows(filter=chosen) == (3 if name == "n" else 1), f"{name} = {value}"


@pytest.mark.parametrize(("values", "bounds"), [([0.0, 0.0], (-0.0, 0.0)), ([-0.0, 1.0], (-0.0, 1.0))])
def test_a_bound_of_zero_is_below_or_above_both_zeros(
    tmp_path: Path, values: list[float], bounds: tuple[float, float]
) -> None:
    """Some readers distinguish -0.0 from 0.0."""
    write(tmp_path, columns(n=[1, 2], f=values))
    [file] = pa.table(DeltaTable(str(tmp_path / "table")).get_add_actions(flatten=True)).to_pylist()
    assert (str(file["min.f"]), str(file["max.f"])) == tuple(map(str, bounds))


def test_a_window_ends_files_at_their_size(tmp_path: Path) -> None:
    """Also within a partition; all of them are in one transaction."""
    batch = columns(n=pa.array(range(200_000)), text=[f"{n * 7919 % 1000003:x}" * 3 for n in range(200_000)])
    found = write(tmp_path, batch, target_file_bytes="256KiB")
    table = DeltaTable(str(tmp_path / "table"))
    sizes = [Path(uri.removeprefix("file://")).stat().st_size for uri in table.file_uris()]
    assert len(sizes) > 3 and max(sizes) < 320 << 10 and table.version() == 0
    assert pc.sum(found["n"]).as_py() == sum(range(200_000))


def test_metadata_columns_say_where_a_record_is_from(tmp_path: Path) -> None:
    """The file, the offset of its first byte, and the window; with small files in one batch, too."""
    texts = {"a.txt": b"one\ntwo\n", "b.txt": b"three\n", "c.txt": b"four\nfive\nsix\n"}
    (tmp_path / "in").mkdir()
    for name, text in texts.items():
        (tmp_path / "in" / name).write_bytes(text)
    for batch_bytes in (0, 1 << 20):
        root = tmp_path / str(batch_bytes)
        operators: dict[str, Given] = {
            "splitter": FileSplitterInput(files=[str(tmp_path / "in")], block_size=4, batch_bytes=batch_bytes),
            "reader": BlockReader(min_readers=2, max_readers=2),
            "table": (
                TableWriter(table=f"delta:{root / 'table'}", metadata_columns=["file", "offset", "window"]),
                "parallel",
            ),
        }
        edges = ["splitter.blocks_metadata_output reader.blocks_metadata_input", "reader.messages table.input"]
        run(dag(root, operators, edges), runtime=InlineRuntime)
        found = read(root).to_pylist()
        assert len(found) == 6 and {row["_dagflow_window"] for row in found} == {1}
        for row in found:
            text = texts[Path(row["_dagflow_file"]).name]
            assert text[row["_dagflow_offset"] :].split(b"\n")[0] == row["record"]


def test_records_without_a_source_have_no_file_and_offset(tmp_path: Path) -> None:
    """An operator upstream made them; their window is known all the same."""
    found = write(tmp_path, columns(n=[1]), metadata_columns=["file", "offset", "window"])
    assert found.to_pylist() == [{"n": 1, "_dagflow_file": None, "_dagflow_offset": None, "_dagflow_window": 1}]


@pytest.mark.parametrize("text", ["x", "5", "[1]", "{"])
def test_a_text_of_other_origin_in_the_rescued_is_kept(tmp_path: Path, text: str) -> None:
    """As a value of that name, beside what the writer rescues; a column of another type is refused."""
    given = [
        columns(n=pa.array([1])),
        columns(n=pa.array([2]), _rescued=pa.array([text])),
        columns(n=pa.array(["y"]), _rescued=pa.array([text])),
    ]
    found = write(tmp_path / "a", *given)
    assert {row["n"]: row["_rescued"] for row in found.to_pylist() if row["n"]} == {1: None, 2: text}
    (rescued,) = (row["_rescued"] for row in found.to_pylist() if row["n"] is None)
    values = json.loads(rescued)
    assert (values["n"], values["_rescued"]) == ("y", text)
    with pytest.raises(DagflowError, match=r"column '_rescued' is int64, .* as text .*; rename it"):
        write(tmp_path / "b", columns(_rescued=pa.array([5])))


def test_a_new_column_stops_the_run_before_its_window_is_committed(tmp_path: Path) -> None:
    """In the run that made the table as in a later one; what was committed stays, and once there is room it goes on."""
    batches = [columns(n=[1]), columns(n=[2], more=["x"])]
    for _ in range(2):
        with pytest.raises(DagflowError, match="has no column 'more' for string; it has n"):
            write(tmp_path, *batches, on_new_column="fail")
        assert read(tmp_path).to_pylist() == [{"n": 1}]
        names = list(BATCHES)[-2:]
        BATCHES.update({names[0]: batches[0], names[1]: batches[1]})
    DeltaTable(str(tmp_path / "table")).alter.add_columns([Field("more", PrimitiveType("string"))])
    assert sorted(write(tmp_path, *batches).to_pylist(), key=str) == [{"n": 1, "more": None}, {"n": 2, "more": "x"}]


def test_a_new_column_is_added_without_a_restart(tmp_path: Path) -> None:
    """In the run that made the table as in a later one, wherever it stands; the type is that of a new table."""
    first = [columns(n=[1]), columns(more=["x"], n=[2]), columns(n=[3], last=pa.array([7], pa.uint8()))]
    found = write(tmp_path, *first)
    assert found.schema.names == ["n", "more", "last"]
    assert found.schema.field("last").type == pa.int16()
    found = write(tmp_path, *first, columns(n=[4], later=[True], more=["y"]), partition_by=())
    assert found.sort_by("n").to_pylist() == [
        {"n": 1, "more": None, "last": None, "later": None},
        {"n": 2, "more": "x", "last": None, "later": None},
        {"n": 3, "more": None, "last": 7, "later": None},
        {"n": 4, "more": "y", "last": None, "later": True},
    ]


@pytest.mark.parametrize(
    ("batch", "reason"),
    [
        (columns(n=[1], more=[1.5]), "column 'more' is double, and string in table"),
        (columns(N=[1]), "cannot have both columns 'n' and 'N': case does not count"),
    ],
)
def test_a_column_that_cannot_be_added_stops_the_run(tmp_path: Path, batch: pa.RecordBatch, reason: str) -> None:
    """What was committed stays."""
    with pytest.raises(DagflowError, match=reason):
        write(tmp_path, columns(n=[1], more=["x"]), batch, on_type_change="fail", on_new_column="fail")
    assert read(tmp_path).num_rows == 1


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"table": "out/orders"}, "table takes delta:PATH, as in delta:out/orders, iceberg:.*; got 'out/orders'"),
        ({"table": "delta:"}, "table takes delta:PATH"),
        ({"table": "delta:gs://bucket/orders"}, "delta takes a directory of a local disk or of S3, not gs://bucket/or"),
        ({"table": "delta:out", "partition_by": ["a", "a"]}, "partition_by names a column twice"),
        ({"table": "delta:out", "metadata_columns": "path"}, "'file', 'offset' or 'window'"),
    ],
)
def test_mistakes_in_properties_are_reported(properties: dict[str, Any], reason: str) -> None:
    """They are errors of `validate`, with what would be right."""
    with pytest.raises(ValueError, match=reason):
        TableWriter(**properties)


def test_a_missing_package_is_named_with_its_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is imported to find that out."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ValueError, match=r"deltalake; install it with: pip install 'dagflow\[delta\]'"):
        TableWriter(table="delta:out")
