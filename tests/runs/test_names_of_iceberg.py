"""Columns that Iceberg takes for members of others, or for partitions: refused where the app says fail."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from dagflow.engine.run import run
from dagflow.errors import PlanError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.nightly import by_day
from tests.runs.remedy_app import refusal
from tests.runs.test_names_that_differ_in_case import ALL, AS_FOUND, decided, put

APP = """
name: names
attributes: {{checkpoint: "{root}/journal"}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: "{root}/in", max_files_per_window: 1, batch_bytes: 0}}}}
  reader: {{class: BlockReader, properties: {{format: {format}}}}}
  select: {{class: Select, properties: {select}, partition: parallel}}
  table:
    class: TableWriter
    properties:
      table: "iceberg:shop.orders"
      catalog: {{type: sql, uri: "sqlite:///{root}/catalog.db", warehouse: "{root}/warehouse"}}
      partition_by: [{partition}]
      on_new_column: {on_new_column}
    partition: parallel
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  read: {{from: reader.messages, to: select.input}}
  rows: {{from: select.output, to: table.input}}
"""


def work(
    root: Path, format: str = AS_FOUND, select: str = ALL, partition: str = "", on_new_column: str = "add"
) -> list[dict[str, object]]:
    """Run the app and return the rows of the table, in their order."""
    values = {"format": format, "select": select, "partition": partition, "on_new_column": on_new_column}
    (root / "app.yaml").write_text(APP.format(root=root, **values))
    run(load_app(root / "app.yaml"), runtime=InlineRuntime)
    catalog = load_catalog("default", type="sql", uri=f"sqlite:///{root}/catalog.db", warehouse=f"{root}/warehouse")
    rows: list[dict[str, object]] = catalog.load_table("shop.orders").scan().to_arrow().to_pylist()
    return sorted(rows, key=lambda row: int(str(row["id"])))


FIRST = '{"id": 1, "a": {"b": 1}}\n'
KEPT = {"id": 1, "a": {"b": 1}}
REMEDIES = {
    "name the wanted": ("{type: json_lines, columns: {id: int64, a: 'struct<b: int64>'}}", ALL, {}),
    "rename one": (
        "{type: json_lines, columns: {id: int64, a: 'struct<b: int64>', a.b: int64}}",
        "{rename: {a.b: ab}}",
        {"ab": 2},
    ),
    "drop one": ("{type: json_lines, columns: {id: int64, a: 'struct<b: int64>', a.b: int64}}", "{drop: a.b}", {}),
}


@pytest.mark.parametrize("remedy", REMEDIES)
@pytest.mark.parametrize("is_later", by_day(1, [False, True]), ids=by_day(1, ["first window", "later window"]))
def test_a_column_called_as_a_member_is_left_out_or_renamed(tmp_path: Path, remedy: str, is_later: bool) -> None:
    """The error names the record, and each of its remedies is taken, whether or not there is a table."""
    before: list[dict[str, object]] = []
    if is_later:
        put(tmp_path, a='{"id": 0, "a": {"b": 0}}\n')
        before = work(tmp_path)
    put(tmp_path, b=FIRST.replace("}}", '}, "a.b": 2}'))
    message = refusal(
        lambda: work(tmp_path, on_new_column="fail"),
        "cannot have two fields called 'a.b', one of which is a member, in columns",
    )
    assert f"the first record with 'a.b' is at {tmp_path}/in/b:0\n" in message
    assert "columns of a JSON reader name those that are wanted, or a Select before the table drop or rename" in message
    assert decided(tmp_path) == 2 * len(before)  # one window more puts what it has into the table
    format, select, more = REMEDIES[remedy]
    assert work(tmp_path, format, select) == [*({**row, **dict.fromkeys(more)} for row in before), {**KEPT, **more}]


def test_a_later_column_called_as_a_member_is_rescued(tmp_path: Path) -> None:
    """The table does not get the column, although it gets others."""
    put(tmp_path, a=FIRST)
    work(tmp_path)
    put(tmp_path, b='{"id": 2, "a.b": 2}\n')
    rows = work(tmp_path)
    assert [row["a"] for row in rows] == [{"b": 1}, None] and '"a.b": 2' in str(rows[1]["_rescued"])


def test_members_of_one_column_with_one_name_are_named_in_the_app(tmp_path: Path) -> None:
    """As those that differ in case only."""
    put(tmp_path, a='{"id": 1, "o": {"a": {"b": 1}, "a.b": 2}}\n')
    message = refusal(
        lambda: work(tmp_path, on_new_column="fail"),
        "two fields called 'o.a.b', one of which is a member, in column 'o'; the f",
    )
    assert "give 'o' as a struct<...> of the members that are wanted, or a Select before the table drop" in message
    assert decided(tmp_path) == 0
    columns = "{type: json_lines, columns: {id: int64, o: 'struct<a: struct<b: int64>>'}}"
    assert work(tmp_path, columns) == [{"id": 1, "o": {"a": {"b": 1}}}]


@pytest.mark.parametrize(
    ("select", "row"),
    [("{drop: n_trunc_4}", {}), ("{rename: {n_trunc_4: cut}}", {"cut": 0})],
    ids=["leave it out", "give it another name"],
)
@pytest.mark.parametrize("is_later", [False, True], ids=["first window", "later window"])
def test_a_column_called_as_a_partition_gets_another_name(
    tmp_path: Path, is_later: bool, select: str, row: dict[str, int]
) -> None:
    """Or is left out; where columns are known before a run, `validate` says so, too."""
    partition = "'truncate(4, n)'"
    before: list[dict[str, object]] = []
    if is_later:
        put(tmp_path, a='{"id": 0, "n": 1}\n')
        before = work(tmp_path, partition=partition)
    put(tmp_path, b='{"id": 1, "n": 3, "n_trunc_4": 0}\n')
    reason = r"cannot have a column 'n_trunc_4' and be partitioned by truncate\(4, n\), which it calls 'n_trunc_4', too"
    message = refusal(lambda: work(tmp_path, partition=partition, on_new_column="fail"), reason)
    assert f"the first record with 'n_trunc_4' is at {tmp_path}/in/b:0\n    leave one of them out, or" in message
    assert decided(tmp_path) == 2 * len(before)  # one window more puts what it has into the table
    typed = "{type: json_lines, columns: {id: int64, n: int64, n_trunc_4: int64}}"
    if not is_later:
        with pytest.raises(PlanError, match=reason):
            work(tmp_path, typed, partition=partition)
    after = [*({**each, **dict.fromkeys(row)} for each in before), {"id": 1, "n": 3, **row}]
    assert work(tmp_path, typed, select, partition) == after


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_a_number_below_all_multiples_is_rescued(tmp_path: Path, kind: str) -> None:
    """Its record arrives, in the partition of null, and so do the others."""
    least, partition = -(2 ** (int(kind[3:]) - 1)), "'truncate(10, n)'"
    put(tmp_path, a=f'{{"id": 1, "n": {least}}}\n{{"id": 2, "n": {least + 8}}}\n')
    rows = work(tmp_path, f"{{type: json_lines, columns: {{id: int64, n: {kind}}}}}", partition=partition)
    assert [(row["id"], row["n"]) for row in rows] == [(1, None), (2, least + 8)]
    assert f'"n": {least}' in str(rows[0]["_rescued"]) and rows[1]["_rescued"] is None
