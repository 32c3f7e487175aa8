"""Queries give what DuckDB gives, and what no operator computes is refused at its place."""

from __future__ import annotations

import random
import re
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagflow.engine.run import run
from dagflow.errors import AppError
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.local import InlineRuntime
from operators.expressions.syntax import ExpressionError
from operators.sql.sql import Sql
from tests.nightly import by_day

APP = """
name: query
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", block_size: 500}}}}
  reader:
    class: BlockReader
    properties:
      min_readers: 3
      format:
        type: csv
        header: false
        skip_header: 1
        columns: {{id: int64, country: string, qty: int64, price: "decimal(9, 2)"}}
  sql:
    class: Sql
    properties:
      query: |
        {query}
      tables: {{{tables}}}
    partition: parallel
  writer: {{class: RecordWriter, properties: {{path: "{root}/out", format: parquet}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  read: {{from: reader.messages, to: sql.input}}
  found: {{from: sql.output, to: writer.input}}
"""
TABLES = {
    "rates": '{{table: "csv:{root}/rates.csv", csv: {{columns: {{rate: float64}}}}}}',
    "tags": '{{table: "csv:{root}/tags.csv", duplicates: all}}',
    "places": '{{table: "csv:{root}/places.csv", duplicates: all}}',
}
QUERIES = """
select * from input where qty > 1
select id, qty * price as total, upper(country) c from input as i where i.qty is not null
select country, count(*) as n, sum(qty * price) as total from input group by country
select count(*) as n, avg(price) as p from input where country = 'DE'
select upper(country) as c, count(*) as n from input group by 1 having n > 45 order by n desc
select sum(price) as t, country from input group by country having count(*) > 40 order by sum(qty) desc, country limit 2
select upper(country) as country, count(*) as n from input group by country
select distinct country, qty from input
select i.id, r.name, r.rate * i.price as v from input as i join rates as r using (country)
select id, rates.name from input left join rates on input.country = rates.country
select * from input join rates using (country)
select i.*, r.name from input i left join rates r using (country) where r.rate is null
select r.* from input i join rates r using (country)
select name, sum(price * rate) as total from input join rates using (country) group by name
select tag, count(*) as n from input join tags on input.country = tags.land group by tag
select name, tag from input left join rates using (country) left join tags on tags.land = input.country
select id, place from input join places on input.country = places.land and input.country = places.region
select id, place from input left join places l on l.land = input.country and input.country = l.region
select id, place from input i join places p on p.region = i.country and i.country = p.land and p.land = i.country
select coalesce(r.name, '?') as name, sum(qty) as n from input left join rates r using (country) group by name
select upper(place) as p, count(*) as n from input join places l on input.country = l.land group by place
select upper(l.place) as place, count(*) as n from input join places l on input.country = l.land group by place
select big, count(*) as n from (select *, price > 5 as big from input) as t group by big
with t as (select country, count(*) as n from input group by country) select max(n) as most, sum(n) as total from t
select id, price from input order by price desc, id limit 5
select id from input order by price * 2, id desc limit 5
select * from input order by price, id limit 3
with recursive u as materialized (select id, qty from input) select qty, id from u
select all id from input where qty between asymmetric 1 and 2
select id, price from input order by price asc nulls last, id limit (5)
select case when qty > 1 then 'many' else 'few' end as what, min(price) as lo from input group by what order by what
select country || '!' as k, count(*) + 1 as n from input group by country || '!' order by k
select country from input group by country
select n, count(*) as m from (select country, count(*) as n from input group by country) group by n
select country, sum(qty) as qty from input group by country having sum(qty) > 50
select max(qty) as qty from input having max(qty) > 1
select country, sum(qty) as qty from input group by country order by sum(qty) desc limit 2
select qty + id - 1 + 2 + max(price) as a, qty + id + 1 - qty as b from input group by qty + id, qty + id - 1, qty
select country as qty, count(*) as n from input group by country having SUM(qty) + count(*) > 90
""".strip().splitlines()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Orders in several files, and two tables."""
    root = tmp_path_factory.mktemp("sql")
    (root / "in").mkdir()
    chosen = random.Random(1)
    for file in range(3):
        rows = [
            f"{file * 60 + row},{chosen.choice(['DE', 'FR', 'IT', 'ES'])},{chosen.choice([1, 2, 3, ''])},"
            f"{chosen.randint(1, 999) / 100}\n"
            for row in range(60)
        ]
        (root / "in" / f"{file}.csv").write_text("id,country,qty,price\n" + "".join(rows))
    (root / "rates.csv").write_text("country,rate,name\nDE,1.5,Germany\nFR,2.5,France\nXX,1,Nowhere\n")
    (root / "tags.csv").write_text("land,tag\nDE,a\nDE,b\nIT,c\n")
    (root / "places.csv").write_text("land,region,place\nDE,DE,Bonn\nDE,FR,Kehl\nFR,FR,Lyon\nIT,ES,Alghero\nXX,DE,x\n")
    return root


def app(root: Path, query: str, place: Path) -> LogicalPlan:
    """An app that computes a query of the orders."""
    tables = ", ".join(f"{name}: {text.format(root=root)}" for name, text in TABLES.items() if name in query)
    text = APP.format(root=root, query=query, tables=tables)
    (place / "app.yaml").write_text(
        text.replace(f"{root}/journal", f"{place}/journal").replace(f"{root}/out", f"{place}/out")
    )
    return load_app(place / "app.yaml")


def comparable(rows: list[tuple[Any, ...]]) -> list[tuple[str, ...]]:
    """Rows in an order of their own, with numbers of any type alike."""

    def text(value: Any) -> str:
        return f"{float(value):.6f}" if isinstance(value, int | float | Decimal) else str(value)

    return sorted(tuple(map(text, row)) for row in rows)


@pytest.mark.parametrize("query", by_day(8, QUERIES))
def test_a_query_gives_what_duckdb_gives(folder: Path, tmp_path: Path, query: str) -> None:
    """The same columns in the same order, and the same rows, over several blocks and partitions."""
    run(app(folder, query, tmp_path), runtime=InlineRuntime)
    connection = duckdb.connect(config={"threads": 1})
    types = {"id": "bigint", "country": "varchar", "qty": "bigint", "price": "decimal(9, 2)"}
    connection.sql(f"create view input as select * from read_csv('{folder}/in/*.csv', columns = {types})")
    kinds = {"country": "varchar", "rate": "double", "name": "varchar"}
    connection.sql(f"create view rates as select * from read_csv('{folder}/rates.csv', columns = {kinds})")
    connection.sql(f"create view tags as select * from read_csv('{folder}/tags.csv')")
    connection.sql(f"create view places as select * from read_csv('{folder}/places.csv')")
    expected, found = connection.sql(query), connection.sql(f"select * from read_parquet('{tmp_path}/out/*')")
    assert found.columns == expected.columns
    assert comparable(found.fetchall()) == comparable(expected.fetchall())


@pytest.mark.parametrize(
    "query",
    [
        "select i.c.town, sum(n) as total from input i where c.town is null or c.town <> '' group by c.town",
        "select spot.zip as town, max(c.town) as m from input left join places p on input.n = p.n group by town",
        "select p.spot.zip, count(*) as m from input left join places p on input.n = p.n group by spot.zip",
        "select c.town, spot.zip from input left join places p on input.n = p.n",
        "select place, p.spot.zip as z from input i join places p on p.n = i.n where i.c.town is not null",
    ],
)
def test_a_query_takes_members_of_structs(query: str, tmp_path: Path) -> None:
    """Of the records and of a joined table, with and without its name; a column of one has its name."""
    (tmp_path / "in.jsonl").write_text('{"c": {"town": "x"}, "n": 1}\n{"c": {"town": "x"}, "n": 2}\n{"n": 4}\n')
    run(members_app(query, tmp_path), runtime=InlineRuntime)
    connection = duckdb.connect(config={"threads": 1})
    connection.sql(f"create view input as select * from read_json('{tmp_path}/in.jsonl')")
    connection.sql(f"create view places as select * from '{tmp_path}/places.parquet'")
    expected, found = connection.sql(query), connection.sql(f"select * from read_parquet('{tmp_path}/out/*')")
    assert found.columns == expected.columns
    assert comparable(found.fetchall()) == comparable(expected.fetchall())


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("select n from input join places p on p.n = input.n and p.n = input.c.zip", "a join compares columns by ="),
        ("select n from input join places p on p.spot.zip = input.n", "a join compares columns by ="),
        ("select count(p.*) as n from input join places p on p.n = input.n", "p.* is no value"),
        ("select place.zip as z from input join places on places.n = input.n", "written input.place.zip"),
    ],
)
def test_a_query_that_takes_members_elsewhere_is_refused(query: str, message: str, tmp_path: Path) -> None:
    """A condition of a join is not left out, and all columns are not counted as rows."""
    with pytest.raises(AppError, match=re.escape(message)):
        members_app(query, tmp_path)


def members_app(query: str, root: Path) -> LogicalPlan:
    """An app that computes a query of records with structs, and a table that has some."""
    table = {"n": [1, 4], "place": ["a", "b"], "spot": [{"zip": 7}, None]}
    pq.write_table(pa.table(table), root / "places.parquet")
    tables = f'tables: {{places: {{table: "parquet:{root}/places.parquet"}}}}' if "places" in query else ""
    (root / "app.yaml").write_text(MEMBERS.format(root=root, query=query, tables=tables))
    return load_app(root / "app.yaml")


MEMBERS = """\
name: members
attributes: {{checkpoint: "{root}/journal"}}
steps:
  - files: "{root}/in.jsonl"
  - read: {{type: json_lines, columns: {{c: "struct<town: string, zip: int64>", n: int64}}}}
  - sql: {query}
    {tables}
  - write: "{root}/out"
    format: parquet
"""


def test_the_plan_shows_what_a_query_is_made_of(folder: Path, tmp_path: Path) -> None:
    """Only groups need an exchange; what stands behind the unifier is in its stage."""
    query = "select name, count(*) as n from input join rates using (country) where qty > 1 group by name order by n"
    plan = app(folder, query, tmp_path)
    parts = [name.removeprefix("sql#") for name in plan.operators if name.startswith("sql#")]
    assert parts == ["join_rates", "where", "aggregate", "aggregate#unifier", "top"]
    heads = plan.fusion().heads
    assert {name: heads[f"sql#{name}"] for name in parts} == {
        **dict.fromkeys(["join_rates", "where", "aggregate"], "reader"),
        **dict.fromkeys(["aggregate#unifier", "top"], "sql#aggregate#unifier"),
    }


@pytest.mark.parametrize(
    ("query", "at", "reason"),
    [
        ("select id from input where qti > 1", "qti", "there is no column 'qti'; did you mean 'qty'"),
        (
            "select r.nme as n from input join rates as r using (country)",
            "r.nme",
            "table 'r' has no column 'nme'; did you mean 'name'?",
        ),
        ("select country + 1 as x from input", "country", "takes numbers, and this is text"),
        ("select k + 1 as x from (select country as k from input group by country)", "k + 1", "takes numbers"),
        ("select id from input order by id limit 1000 offset 1", "1", "offset is not available"),
    ],
)
def test_a_mistake_is_reported_at_its_place_in_the_app(
    folder: Path, tmp_path: Path, query: str, at: str, reason: str
) -> None:
    """Before anything runs, also of a table that is joined, and behind groups."""
    with pytest.raises(AppError, match=re.escape(reason)) as caught:
        app(folder, query, tmp_path)
    lines = (tmp_path / "app.yaml").read_text().splitlines()
    line = next(number for number, text in enumerate(lines, 1) if query in text)
    (problem,) = caught.value.problems
    position = query.rindex(at) if at == "1" else query.index(at)
    assert (problem.line, problem.column) == (line, 9 + position)


@pytest.mark.parametrize(
    ("query", "at", "reason"),
    [
        ("select a from input union select b from input", "b", "let both streams go to one port"),
        ("select rank() over (partition by b) as r from input", "rank", "Aggregate groups records"),
        ("selec a from input", "selec", "'selec' is not expected here; did you mean 'select'?"),
        ("select a from input qualify b", "b", "qualify is not available"),
        ("delete from input", "delete", "a query is expected"),
        ("select a from input group by rollup(z)", "z", "'ROLLUP (z)' is not available"),
        ("select a from rates", "rates", "'rates' can be joined: from input join rates using"),
        ("select a from input join rates on a > b", "a > b", "a join compares columns by ="),
        ("select a from input join rates on z = b", "z", "as input.country = rates.country"),
        ("select a from input join rats using (a)", "rats", "did you mean 'rates'?"),
        ("select a from input right join rates using (a)", "rates", "right join is not available"),
        ("select a from input, rates", "rates", "join rates using (country)"),
        ("select a from input join rates as input using (a)", "rates", "is joined twice"),
        ("select count(*) from input", "count", "give the expression a name"),
        ("select a from input limit 5", "5", "limit needs order by"),
        ("select b from input order by a", "a", "order by needs a limit"),
        ("select a, count(*) as n from input group by b", "a, ", "column 'a' has many values in a group"),
        ("select a from input where count(*) > 1", "count", "a condition on groups belongs into having"),
        ("select inpt.a from input", "inpt.a", "there is no table 'inpt' in from; did you mean 'input'?"),
        ("select z, b as z from input", "b", "two columns would be called 'z'"),
        ("select count(distinct a) as n from input", "count", "group by the column first"),
        ("select * from input group by a", "*", "groups have no *"),
        ("select foo(a) as b from input", "foo", "there is no function 'foo'; did you mean 'floor'?"),
        ("select b from input order by a nulls first limit 2", "a n", "nulls come last"),
        ("select a from input order by a limit 5 offset 2", "2", "offset is not available"),
        ("select * exclude (z) from input", "*", "name the columns"),
        ("select sum(b) filter (where c) as s from input", "sum", "sum(case when paid then price end)"),
        ("select a from input tablesample (10)", "input", "sample is not available"),
        ("with t as (select z from input) select a from input", "z", "'t' of with is in no from"),
        ("select distinct on (z) a from input", "z", "distinct on is not available; group by is"),
        ("with u(z, a) as (select a, b from input) select z from u", "u(", "columns are named in the select list"),
        ("select a from (select b as a from input) as u(z)", "u(", "columns are named in the select list"),
        ("select a from input where z between symmetric 5 and 1", "z", "between symmetric is not available"),
        ("select a from input order by a limit 50 percent", "50", "limit takes a number alone"),
        ("select a from input order by a limit 1 with ties", "1", "limit takes a number alone"),
        ("select a from input order by a limit 1 by b", "1", "limit takes a number alone"),
        ("select a from input order by a limit 5 + 1", "5", "give a whole number from 1 on behind limit"),
        ("select a from input order by a limit -5", "5", "give a whole number from 1 on behind limit"),
        ("select a from input order by z with fill limit 3", "z", "nulls last alone"),
        (
            "select cast(z as int default 0 on conversion error) as a from input",
            "z",
            "write coalesce(try_cast(a as int)",
        ),
        ("select count(* exclude (a)) as n from input", "* e", "* takes no exceptions"),
    ],
)
def test_a_query_that_is_not_computed_is_refused(query: str, at: str, reason: str) -> None:
    """The message says where, and what to write instead."""
    tables = {"rates": {"table": "csv:rates.csv"}} if "rates" in query or "rats" in query else {}
    with pytest.raises(ExpressionError, match=re.escape(reason)) as caught:
        Sql(query=query, tables=tables)
    assert caught.value.offset == query.index(at)


def test_a_table_that_no_query_joins_is_a_mistake() -> None:
    """Such a table would not be read."""
    with pytest.raises(ValueError, match="the query does not join 'rates'"):
        Sql(query="select a from input", tables={"rates": {"table": "csv:rates.csv"}})
