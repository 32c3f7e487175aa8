"""Names in queries with groups stand for what they stand for in DuckDB: columns, or entries of the select list."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.api.records import RecordBatch
from dagflow.engine.run import run
from dagflow.errors import AppError, DagflowError, JournalError, OperatorError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.operators import OperatorHarness
from operators.expressions.syntax import ExpressionError
from operators.sql.scope import Groups
from operators.sql.sql import Sql
from tests.engine.test_operator_state import until
from tests.nightly import examples

TABLE = pa.table(
    {
        "a": pa.array([1, 1, 2, 2, 3, None, 1, 0], pa.int64()),
        "b": pa.array([1, 2, 2, 2, 1, 1, 2, None], pa.int64()),
    }
)
NAMED_TWICE = "is a column, which group by means, and an entry of the select list is called so as well"


class RefusedQuery(str):
    """Stands for the rows of a query that is not computed."""


def rows_of(query: str) -> list[tuple[Any, ...]] | RefusedQuery:
    """What the operators of a query make of the table; why they do not."""
    try:
        (batch,) = TABLE.to_batches()
        for part in Sql(query=query).expand().parts.values():
            harness = OperatorHarness(part)
            harness.window({"input": RecordBatch(batch)})
            batches = [found.to_arrow() for found in harness.batches["output"]]
            batch = pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
    except (ExpressionError, OperatorError) as error:
        return RefusedQuery(error)
    return list(zip(*(column.to_pylist() for column in batch.columns), strict=True))


def in_duckdb(query: str) -> list[tuple[Any, ...]] | RefusedQuery:
    """What DuckDB makes of the table."""
    with duckdb.connect(config={"threads": 1}) as connection:
        connection.register("input", TABLE)
        try:
            return connection.sql(query).fetchall()
        except duckdb.Error as error:
            return RefusedQuery(error)


ENTRIES = ["a", "b", "a + 1", "a + b", "2"]
RESULTS = ["count(*)", "sum(a)", "sum(b)", "max(b) + b", "a + sum(b)"]
KEYS = ["a", "b", "a + 1", "b + 1"]
POSITIONS = ["c", "1", "2"]
CONDITIONS = ["a > 1", "b > 1", "c > 1", "sum(b) > 2", "max(a) > 1", "a + 1 > 2", "count(*) > 1 and b > 0"]
ORDER = ["a", "b", "c", "sum(b)", "max(a) desc", "2 desc"]


@st.composite
def queries(draw: st.DrawFn) -> str:
    """Draw a query whose entries may have the names of columns."""
    names = draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=3, unique=True))
    keys = draw(st.lists(st.sampled_from(KEYS), min_size=1, max_size=2, unique=True))
    # Not a number and a name: DuckDB passes over `having c > 1` behind `group by 1, c`.
    keys = draw(st.permutations([*keys, *draw(st.lists(st.sampled_from(POSITIONS), max_size=1))]))
    # Most entries are keys, as most queries are wrong otherwise.
    known = [key for key in keys if key in KEYS]
    entries = [f"{draw(st.sampled_from([*known, *known, *known, *ENTRIES, *RESULTS]))} as {name}" for name in names]
    condition = draw(st.none() | st.sampled_from(CONDITIONS))
    order = draw(st.none() | st.sampled_from(ORDER))
    query = f"select {', '.join(entries)} from input group by {', '.join(keys)}"
    query += f" having {condition}" if condition else ""
    # The other entries put the rows of equal values in order.
    positions = [str(number) for number in range(1, len(names) + 1)]
    return f"{query} order by {', '.join([order, *positions])}" if order else query


@given(queries())
@settings(max_examples=examples(80))
def test_groups_are_those_that_duckdb_gives(query: str) -> None:
    """Also refused is what it refuses, and nothing else but what would depend on columns that may come or not."""
    ours, theirs = rows_of(query), in_duckdb(query)
    if isinstance(ours, RefusedQuery) and not isinstance(theirs, RefusedQuery):
        assert NAMED_TWICE in ours, (ours, theirs)
    elif isinstance(ours, RefusedQuery) or isinstance(theirs, RefusedQuery):
        assert isinstance(ours, RefusedQuery) and isinstance(theirs, RefusedQuery), (ours, theirs)
    elif "order by" in query:
        assert ours == theirs
    else:
        assert sorted(ours, key=str) == sorted(theirs, key=str)


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("select a as x, b as a, count(*) as n from input group by a, b", None),
        ("select a + 1 as b, b as c, count(*) as n from input group by a + 1, b", None),
        ("select a + 1 as b, b as c, count(*) as n from input group by a + 1, b having b > 1", None),
        ("select a as b, count(*) as n from input group by a having sum(b) > 2 and b > 1", None),
        ("select a + 1 as c, count(*) as n from input group by c order by c", None),
        ("select 1 as c, a as d, count(*) as n from input group by c, a", None),
        ("select a, 1 as c, count(*) as n from input group by a order by c, n desc, a", None),
        ("select a, count(*) as n from input group by a order by 1 desc, 2, 1", None),
        ('select a as "#by0", count(*) as "#condition" from input group by a, b having b > 1', None),
        ("select a + 1 as a, a * 2 as d, count(*) as n from input group by a + 1", "column 'a' has many values"),
        ("select a as b, max(b) + b as m from input group by a", "column 'b' has many values"),
        ('select b as c, "#by0" as d from input group by a, b', "column '#by0' has many values"),
        ("select a as b, count(*) as n from input group by b", f"'b' {NAMED_TWICE}"),
        ("select a as b, count(*) as n from input group by a, b", f"'b' {NAMED_TWICE}"),
        ("select a + 1 as b, count(*) as n from input group by b + 1, a + 1", f"'b' {NAMED_TWICE}"),
        ("select a as x, count(*) as n from input group by x", None),
        ("select a as x, count(*) as n from input group by a, b", None),
    ],
)
def test_a_name_in_group_by_is_that_of_a_column_first(query: str, rows: str | None) -> None:
    """A query that reads the column is right; one that may mean it is refused, and right with another name."""
    ours = rows_of(query)
    if rows is None:
        theirs = in_duckdb(query)
        assert not isinstance(theirs, RefusedQuery)
        assert (ours if "order by" in query else sorted(ours, key=str)) == (
            theirs if "order by" in query else sorted(theirs, key=str)
        )
    else:
        assert isinstance(ours, RefusedQuery)
        assert rows in ours


APP = """
name: groups
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in, max_files_per_window: 1, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {format: {type: csv, columns: {a: int64, b: int64}}}}
  sql: {class: Sql, properties: {over: run, query: "QUERY"TABLES}, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out, format: csv}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  rows: {from: reader.messages, to: sql.input}
  found: {from: sql.output, to: writer.input}
"""


def write_app(query: str, tables: str = "") -> None:
    """Write an app that reads a file a window."""
    Path("in").mkdir(exist_ok=True)
    for number in range(4):
        Path("in", f"{number}.csv").write_text("a,b\n1,10\n2,5\n")
    Path("app.yaml").write_text(APP.replace("QUERY", query).replace("TABLES", tables))


def test_a_column_with_the_name_of_an_entry_is_reported_before_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The columns of the reader are known then; also a joined table may have it."""
    monkeypatch.chdir(tmp_path)
    write_app("select a as b, count(*) as n from input group by b")
    with pytest.raises(AppError, match=f"'b' {NAMED_TWICE}"):
        load_app("app.yaml")
    Path("u.csv").write_text("p,v\n1,one\n")
    query = "select input.a as v, count(*) as n from input join u on input.a = u.p group by v"
    tables = ", tables: {u: {table: 'csv:u.csv', csv: {columns: {p: int64}}}}"
    write_app(query, tables)
    with pytest.raises(AppError, match=rf"'u\.v' {NAMED_TWICE}"):
        load_app("app.yaml")
    for name in ("w", "a"):
        write_app(query.replace("as v", f"as {name}").replace("by v", f"by {name}"), tables)
        load_app("app.yaml")


HELD = "select a as x, b + 1 as a, sum(b) as b, count(*) as n from input group by a, b + 1, a * 2 having sum(b) > 1"


def test_a_run_goes_on_with_the_groups_that_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also with keys that no entry of the select list is, and entries with names of columns."""
    monkeypatch.chdir(tmp_path)
    write_app(HELD)
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), runtime=until(2))
    run(load_app("app.yaml"), runtime=InlineRuntime)
    (path,) = Path("out").glob("part-*")
    assert sorted(path.read_text().splitlines()) == ["1,11,40,4", "2,6,20,4", "x,a,b,n"]


def test_groups_that_were_named_otherwise_are_not_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What an earlier version holds of the same query may be of other groups: they are refused, not added up."""
    monkeypatch.chdir(tmp_path)
    write_app(HELD)
    with monkeypatch.context() as patch, pytest.raises(DagflowError, match="the lights went out"):
        patch.setattr(Groups, "hidden_name", lambda _, name: f"#key{name}")
        run(load_app("app.yaml"), runtime=until(2))
    with pytest.raises(JournalError, match=r"operator 'sql' .* was begun with other properties: sql\.by"):
        run(load_app("app.yaml"), runtime=InlineRuntime)
