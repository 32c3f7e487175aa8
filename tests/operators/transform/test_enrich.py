"""Enrich joins records with a table, and says what has no row, or several."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any, Literal

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from pyiceberg.catalog import load_catalog

from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError, OperatorError, PlanError, RecordError
from dagflow.plan.load import load_app
from dagflow.storage.context import StorageContext
from dagflow.testing.operators import OperatorHarness, run_operator
from operators.transform.enrich import Enrich
from tests.nightly import examples

RATES = "country,rate,name\nDE,1.5,Germany\nFR,2,\n"
ORDERS = [
    {"id": 1, "country": "FR"},
    {"id": 2, "country": None},
    {"id": 3, "country": "IT"},
    {"id": 4, "country": "DE"},
]


@pytest.fixture
def rates(tmp_path: Path) -> str:
    """A table of CSV."""
    path = tmp_path / "rates.csv"
    path.write_text(RATES)
    return f"csv:{path}"


def test_columns_of_the_row_with_the_key_are_added(rates: str) -> None:
    """Text without a type is text; a null matches nothing, and a record without a row has nulls."""
    found = run_operator(Enrich(table=rates, on="country", csv={"columns": {"rate": "float64"}}), ORDERS)["output"]
    assert found == [
        {"id": 1, "country": "FR", "rate": 2.0, "name": ""},
        {"id": 2, "country": None, "rate": None, "name": None},
        {"id": 3, "country": "IT", "rate": None, "name": None},
        {"id": 4, "country": "DE", "rate": 1.5, "name": "Germany"},
    ]


def test_columns_are_chosen_and_named(rates: str) -> None:
    """A key may have another name in the table, and a column of it another one in the records."""
    rows = [{"land": "DE", "name": "x"}]
    operator = Enrich(table=rates, on={"land": "country"}, columns={"country_name": "name"})
    assert run_operator(operator, rows)["output"] == [{"land": "DE", "name": "x", "country_name": "Germany"}]


def test_a_record_without_a_row_is_dropped_refused_or_ends_the_run(rates: str) -> None:
    """The reject names the table and the key."""
    assert [
        row["id"] for row in run_operator(Enrich(table=rates, on="country", unmatched="drop"), ORDERS)["output"]
    ] == [1, 4]
    done = run_operator(Enrich(table=rates, on="country", unmatched="reject"), ORDERS)
    assert [row["id"] for row in done["output"]] == [1, 4]
    assert [json.loads(reject)["reason"].partition(" has ")[2] for reject in done["errors"]] == [
        "no row with country None",
        "no row with country 'IT'",
    ]
    with pytest.raises(RecordError, match="no row with country None"):
        run_operator(Enrich(table=rates, on="country", unmatched="fail"), ORDERS)


@pytest.mark.parametrize("choice", ["keep", "drop"])
def test_records_without_a_row_are_counted(rates: str, choice: Literal["keep", "drop"]) -> None:
    """A record with nulls looks like one whose row has nulls."""
    harness = OperatorHarness(Enrich(table=rates, on="country", unmatched=choice))
    harness.window({"input": ORDERS})
    assert harness.counters["unmatched"] == 2


def test_a_key_of_several_rows_is_an_error_that_names_it(tmp_path: Path) -> None:
    """Unless the app says what is done with it; the order of the rows stays."""
    (tmp_path / "t.csv").write_text("k,v\na,1\nb,2\na,3\n")
    table, rows = f"csv:{tmp_path / 't.csv'}", [{"k": key} for key in "abc"]
    with pytest.raises(DagflowError, match="has 2 rows with k 'a'"):
        run_operator(Enrich(table=table, on="k"), rows)
    done = run_operator(Enrich(table=table, on="k", duplicates="reject"), rows)
    assert [row["v"] for row in done["output"]] == ["2", None]
    assert "has several rows with k 'a'" in json.loads(done["errors"][0])["reason"]
    every = run_operator(Enrich(table=table, on="k", duplicates="all"), rows)["output"]
    assert [(row["k"], row["v"]) for row in every] == [("a", "1"), ("a", "3"), ("b", "2"), ("c", None)]


def test_a_key_that_python_has_not_is_named_as_well(tmp_path: Path) -> None:
    """Times with nanoseconds, in the records and in the table."""
    pq.write_table(pa.table({"k": pa.array([1, 1], pa.timestamp("ns"))}), tmp_path / "t.parquet")
    rows = RecordBatch(pa.RecordBatch.from_pydict({"k": pa.array([1, 2], pa.timestamp("ns"))}))
    operator = partial(Enrich, table=f"parquet:{tmp_path / 't.parquet'}", on="k")
    with pytest.raises(DagflowError, match=r"has 2 rows with k '1970-01-01T00:00:00\.000000001'"):
        run_operator(operator(), rows)
    done = run_operator(operator(unmatched="reject", duplicates="reject"), rows)
    assert [json.loads(reject)["reason"].partition(" has ")[2] for reject in done["errors"]] == [
        "several rows with k '1970-01-01T00:00:00.000000001'",
        "no row with k '1970-01-01T00:00:00.000000002'",
    ]


KEYS = st.lists(st.tuples(st.sampled_from([1, 2, 3, None]), st.sampled_from(["x", "y", None])), max_size=8)


@given(KEYS, KEYS, st.booleans())
@settings(max_examples=examples(40))
def test_a_join_gives_what_duckdb_gives(table: Any, records: Any, is_inner: bool) -> None:
    """By several columns, of other types than the table's, with nulls and with several rows of a key."""
    left = pa.table(
        {
            "a": pa.array([a for a, _ in records], pa.int32()),
            "b": pa.array([b for _, b in records], pa.string()),
            "n": pa.array(range(len(records)), pa.int64()),
        }
    )
    right = pa.table(
        {
            "a": pa.array([a for a, _ in table], pa.int64()),
            "b": pa.array([b for _, b in table], pa.large_string()),
            "m": pa.array(range(len(table)), pa.int64()),
        }
    )
    with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
        pq.write_table(right, file.name)
        operator = Enrich(
            table=f"parquet:{file.name}", on=["a", "b"], duplicates="all", unmatched="drop" if is_inner else "keep"
        )
        batches = left.combine_chunks().to_batches() or [pa.RecordBatch.from_pylist([], left.schema)]
        found = run_operator(operator, RecordBatch(batches[0]))["output"]
    connection = duckdb.connect(config={"threads": 1})
    connection.register("l", left)
    connection.register("r", right)
    how = "inner" if is_inner else "left"
    expected = connection.sql(f"select n, m from l {how} join r on l.a = r.a and l.b = r.b order by n, m").fetchall()
    assert [(row["n"], row["m"]) for row in found] == expected


def test_keys_of_types_that_are_not_compared_are_an_error(rates: str) -> None:
    """The message says what to do, with the property of the table's columns."""
    with pytest.raises(OperatorError, match="column 'id' is bigint in the records, and 'country' is text in") as caught:
        run_operator(Enrich(table=rates, on={"id": "country"}), ORDERS)
    assert "where it is read, as csv: {columns: {country: int64}}, or cast it" in str(caught.value)


def test_keys_of_more_digits_than_are_compared_are_an_error(tmp_path: Path) -> None:
    """They would have no row, though the table has it."""
    key = pa.array([Decimal(10) ** 37], pa.decimal256(60, 10))
    pq.write_table(pa.table({"k": key, "v": [1]}), tmp_path / "t.parquet")
    with pytest.raises(OperatorError, match=r"column 'k' is decimal256\(60, 10\), and keys have 38 digits at most"):
        run_operator(Enrich(table=f"parquet:{tmp_path}", on="k"), RecordBatch(pa.record_batch({"k": key})))


@pytest.mark.parametrize(
    ("keys", "table", "wanted"),
    [
        (pa.array([0, 253_402_214_400_000_000], pa.timestamp("us")), pa.array([0], pa.timestamp("ns")), [0, None]),
        (
            pa.array([-62_135_596_800_000_000, 0], pa.timestamp("us", "UTC")),
            pa.array([0], pa.timestamp("ns", "Europe/Paris")),
            [None, 0],
        ),
        (pa.array([2**53, 2**53 + 1, 2**63 - 1]), pa.array([2.0**53, float("nan"), 2.0**63]), [0, None, None]),
        (pa.array([2.0**53, 1.5, 2.0**63]), pa.array([2**53 + 1, 2**53, 2**63 - 1]), [1, None, None]),
        (pa.array(["1.50", "2.00"]).cast(pa.decimal128(38, 30)), pa.array([2**63 - 1, 2]), [None, 1]),
        (pa.array([Decimal("46826544.815403642760243794290019401728")]), pa.array([2**63 - 1]), [None]),
    ],
)
def test_a_key_that_the_table_cannot_have_has_no_row(
    tmp_path: Path, keys: pa.Array, table: pa.Array, wanted: list[int | None]
) -> None:
    """It is handled as unmatched says, and numbers are compared exactly."""
    pq.write_table(pa.table({"k": table, "row": range(len(table))}), tmp_path / "t.parquet")
    records, properties = RecordBatch(pa.record_batch({"k": keys})), {"table": f"parquet:{tmp_path}", "on": "k"}
    assert [row["row"] for row in run_operator(Enrich(**properties), records)["output"]] == wanted
    done = run_operator(Enrich(unmatched="reject", **properties), records)
    assert [row["row"] for row in done["output"]] == [row for row in wanted if row is not None]
    assert all("has no row with k" in json.loads(reject)["reason"] for reject in done["errors"])
    assert len(done["errors"]) == wanted.count(None)


def test_files_of_other_columns_and_types_are_joined_as_one_table(tmp_path: Path) -> None:
    """As a dataset has them to which a column was added, and one of whose columns has become wider."""
    pq.write_table(pa.table({"k": pa.array([1], pa.int32()), "v": ["a"]}), tmp_path / "0.parquet")
    pq.write_table(pa.table({"k": [2**40], "v": ["b"], "w": [1.5]}), tmp_path / "1.parquet")
    found = run_operator(Enrich(table=f"parquet:{tmp_path}", on="k"), [{"k": 2**40}, {"k": 1}])["output"]
    assert found == [{"k": 2**40, "v": "b", "w": 1.5}, {"k": 1, "v": "a", "w": None}]


@pytest.mark.parametrize("duplicates", ["fail", "all"])
def test_two_columns_of_the_records_may_have_one_key(tmp_path: Path, duplicates: str) -> None:
    """A row has the key if both are equal to it."""
    pq.write_table(pa.table({"k": [1, 2], "v": [10, 20]}), tmp_path / "t.parquet")
    operator = Enrich(table=f"parquet:{tmp_path}", on={"a": "k", "b": "k"}, duplicates=duplicates)
    rows = [{"a": 1, "b": 1}, {"a": 1, "b": 2}, {"a": 2, "b": 2}]
    assert [row["v"] for row in run_operator(operator, rows)["output"]] == [10, None, 20]


def test_a_name_of_several_columns_is_an_error_where_it_is_taken(tmp_path: Path) -> None:
    """As a key, or as what is added; elsewhere the table is joined."""
    pq.write_table(
        pa.table([pa.array([1]), pa.array([2]), pa.array([3])], names=["k", "v", "v"]), tmp_path / "t.parquet"
    )
    table = f"parquet:{tmp_path}"
    with pytest.raises(DagflowError, match=r"columns: table .* has 2 columns called 'v'"):
        run_operator(Enrich(table=table, on="k"), [{"k": 1}])
    with pytest.raises(DagflowError, match=r"on: table .* has 2 columns called 'v'"):
        run_operator(Enrich(table=table, on={"k": "v"}, columns={"other": "k"}), [{"k": 1}])
    operator = Enrich(table=table, on="k", columns={"other": "k"})
    assert run_operator(operator, [{"k": 1}])["output"] == [{"k": 1, "other": 1}]


def test_a_table_that_is_too_large_is_an_error(rates: str) -> None:
    """The error comes before any record is read."""
    with pytest.raises(DagflowError, match="takes more than max_size, 10 bytes, in memory"):
        run_operator(Enrich(table=rates, on="country", max_size=10), ORDERS)


def test_a_table_with_a_bad_row_is_an_error(tmp_path: Path) -> None:
    """It names file and place, as that of a reader does; no other place takes the row."""
    (tmp_path / "t.csv").write_text("k,v\na,1\nb,x\n")
    with pytest.raises(RecordError, match=r"column 'v' \(int64\): 'x'[^`]*correct it there"):
        operator = Enrich(table=f"csv:{tmp_path / 't.csv'}", on="k", csv={"columns": {"v": "int64"}})
        run_operator(operator, [{"k": "a"}])


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"table": "cvs:a"}, "did you mean 'csv'"),
        ({"table": "parquet:a", "csv": {"delimiter": ";"}}, "table is of kind parquet"),
        ({"table": "csv:a", "catalog": {"type": "sql"}}, "catalog is for tables of iceberg"),
        ({"table": "csv:a", "csv": {"delimeter": ";"}}, "did you mean 'delimiter'"),
        ({"table": "iceberg:a"}, "iceberg takes NAMESPACE.NAME"),
    ],
)
def test_properties_that_do_not_fit_are_refused(properties: dict[str, Any], reason: str) -> None:
    """Before anything runs."""
    with pytest.raises((ValueError, ValidationError), match=reason):
        Enrich(on="k", **properties)


APP = """
name: t
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in}}}}
  reader: {{class: BlockReader, properties: {{format: {{type: csv, columns: [id, country]}}}}}}
  enrich: {{class: Enrich, properties: {{table: "{table}", on: {on}}}, partition: parallel}}
  select: {{class: Select, properties: {{columns: {{twice: {expression}}}}}, partition: parallel}}
  writer: {{class: RecordWriter, properties: {{path: out}}, partition: parallel}}
streams:
  b: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  o: {{from: reader.messages, to: enrich.input}}
  e: {{from: enrich.output, to: select.input}}
  t: {{from: select.output, to: writer.input}}
"""


@pytest.mark.parametrize(
    ("on", "expression", "reason"),
    [
        ("countri", "upper(name)", "on: .* has no column 'countri'; did you mean 'country'"),
        ("{kountry: country}", "upper(name)", "on: there is no column 'kountry'; did you mean 'country'"),
        ("country", "upper(nane)", "there is no column 'nane'; did you mean 'name'"),
        ("country", "rate * 2", "takes numbers, and this is text"),
    ],
)
def test_columns_behind_a_table_are_known_before_a_run(
    rates: str, tmp_path: Path, on: str, expression: str, reason: str
) -> None:
    """Where the table is on this machine."""
    app = tmp_path / "app.yaml"
    app.write_text(APP.format(table=rates, on=on, expression=expression))
    with pytest.raises(PlanError, match=reason):
        load_app(app)


def test_an_app_is_valid_before_its_table_is_there(tmp_path: Path) -> None:
    """What follows is looked at when the run begins."""
    app = tmp_path / "app.yaml"
    app.write_text(APP.format(table="csv:nowhere/t.csv", on="country", expression="upper(nane)"))
    assert load_app(app).operators.keys() == {"splitter", "reader", "enrich", "select", "writer"}


def test_tables_of_delta_and_iceberg_are_read(tmp_path: Path) -> None:
    """Each in its newest version, whose name changes with it."""
    rows = pa.table({"country": ["DE"], "rate": pa.array([1.5])})
    deltalake.write_deltalake(str(tmp_path / "delta"), rows)
    catalog = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": str(tmp_path / "w")}
    opened = load_catalog("default", **{**catalog, "warehouse": f"file://{tmp_path}/w"})
    opened.create_namespace("shop")
    opened.create_table("shop.rates", rows.schema).append(rows)
    delta = Enrich(table=f"delta:{tmp_path / 'delta'}", on="country")
    iceberg = Enrich(table="iceberg:shop.rates", on="country", catalog=catalog)
    changes: list[tuple[Enrich, Callable[[], Any]]] = [
        (delta, lambda: deltalake.write_deltalake(str(tmp_path / "delta"), rows, mode="append")),
        (iceberg, lambda: opened.load_table("shop.rates").append(rows)),
    ]
    for operator, change in changes:
        harness = OperatorHarness(operator)
        storage = StorageContext.default()
        before = operator.side_input_version(storage)
        assert before == operator.side_input_version(storage)
        harness.window({"input": [{"country": "DE"}]})
        assert harness.emitted["output"] == [{"country": "DE", "rate": 1.5}]
        change()
        assert operator.side_input_version(storage) != before
        harness.close()
    opened.close()


def test_a_missing_table_ends_a_run_before_it_begins(tmp_path: Path) -> None:
    """With where it should be."""
    with pytest.raises(DagflowError, match="nowhere"):
        run_operator(Enrich(table=f"csv:{tmp_path / 'nowhere'}", on="k"), [{"k": "a"}])
