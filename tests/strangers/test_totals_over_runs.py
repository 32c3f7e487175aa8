"""Totals that add up over runs: each table row is the total of all records of its group, whatever came between."""

from __future__ import annotations

import contextlib
import math
import random
from collections import Counter
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.api.context import OperatorContext
from dagflow.api.keyed_state import KeyedSnapshot
from dagflow.api.partitioning import partitions_of
from dagflow.api.records import RecordBatch
from dagflow.cli.main import command_line
from dagflow.engine.run import run
from dagflow.errors import JournalError, PlanError, SpecError
from dagflow.execution.messages import Program
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash, crashing_disk
from operators.aggregate.aggregate import Aggregate, AggregateTotals, GroupKeys
from tests.cli.processes import dagflow_command
from tests.nightly import IS_NIGHTLY, examples
from tests.strangers.fuzzing import seeds

APP = """\
name: daily
attributes: {checkpoint: journal}
steps:
  - files: inbox
    max_files_per_window: 2
    batch_bytes: 0
  - read: {type: csv, columns: {shop: string, price: int64}}
  - name: sums
    aggregate:
      total: sum(price)
      n: count(*)
    by: shop
    over: OVER
  - table: delta:out/sums
    upsert_by: shop
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an app that sums in each run for itself, and a first file."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inbox").mkdir()
    (tmp_path / "inbox" / "1.csv").write_text("shop,price\na,4\na,6\nb,1\n")
    written("run")
    return tmp_path


def written(over: str, **changes: str) -> None:
    """Write the app with a span, and other texts changed."""
    text = APP.replace("OVER", over)
    for old, new in changes.items():
        text = text.replace(old, new)
    Path("app.yaml").write_text(text)


def command(*words: str) -> Result:
    """Run a command in this process."""
    return CliRunner().invoke(command_line, words)


def totals(table: str = "out/sums") -> dict[Any, int]:
    """The totals in the table; each key must be there once."""
    rows = pa.table(deltalake.DeltaTable(table).to_pyarrow_table()).to_pylist()
    assert len({row["shop"] for row in rows}) == len(rows)
    return {row["shop"]: row["total"] for row in rows}


def run_here(parallelism: int = 2) -> None:
    """Run the app with so many tasks at a time."""
    run(load_app("app.yaml"), runtime=lambda program: of_width(program, parallelism))


def of_width(program: Program, parallelism: int) -> InlineRuntime:
    return InlineRuntime(program, parallelism=parallelism)


def test_totals_are_exact_over_runs_kills_and_partition_counts(folder: Path) -> None:
    """Runs die before some change of the disk, have other partition counts, and lack many groups."""
    for seed in seeds(12 if IS_NIGHTLY else 1):
        chance = random.Random(seed)
        root = folder / str(seed)
        (root / "inbox").mkdir(parents=True)
        written("all", inbox=str(root / "inbox"), journal=str(root / "journal"), **{"out/sums": str(root / "out")})
        expected: Counter[str] = Counter()
        for day in range(3):
            for number in range(chance.randint(1, 4)):
                rows = [(chance.choice(["a", "b", "", *map(str, range(99))]), chance.randint(-9, 9)) for _ in range(30)]
                for shop, price in rows:
                    expected[shop] += price
                text = "shop,price\n" + "".join(f"{shop},{price}\n" for shop, price in rows)
                (root / "inbox" / f"{day}-{number}.csv").write_text(text)
            with crashing_disk(str(root), chance.randint(1, 60)), contextlib.suppress(InjectedCrash):
                run_here(chance.randint(1, 5))
            run_here(chance.randint(1, 5))
        assert totals(str(root / "out")) == dict(expected), f"seed {seed}"


def test_a_run_that_would_replace_whole_totals_warns_and_its_advice_holds() -> None:
    """`validate` and `run` warn about `over: run` alone; with `over: all` from the first run on a table has 17."""
    for words in (("validate", "app.yaml"), ("run", "app.yaml", "--local", "--workers", "1")):
        assert "operator 'sums' gives results of one run each, and table delta" in command(*words).output
    written("all", journal="journal2", **{"out/sums": "out/other"})
    assert "gives results" not in command("validate", "app.yaml").output
    run_here()
    Path("inbox/2.csv").write_text("shop,price\na,7\n")
    run_here()
    assert totals("out/other") == {"a": 17, "b": 1}


def test_refused_records_come_back_into_totals() -> None:
    """Others than those of a table with keys alone: a later total is right, whenever its records came."""
    Path("inbox/2.csv").write_text("shop,price\na,x7\n")
    errors = """\
operators:
  bad: {class: RecordWriter, properties: {path: out/bad}}
streams:
  bad: {from: read.errors, to: bad.input}
"""
    written("all")
    Path("app.yaml").write_text(Path("app.yaml").read_text() + errors)
    run_here()
    Path("inbox/3.csv").write_text("shop,price\na,1\n")
    run_here()
    assert totals() == {"a": 11, "b": 1}
    select = "  - select: {shop: shop, price: \"cast(ltrim(price, 'x') as int64)\"}\n"
    text = Path("app.yaml").read_text().replace("price: int64", "price: string")
    Path("app.yaml").write_text(text.replace("  - name: sums", f"{select}  - name: sums"))
    result = command("rejects", "app.yaml", "replay", "--local", "--workers", "1")
    assert result.exit_code == 0, result.output
    assert totals() == {"a": 18, "b": 1}


def test_a_table_that_keeps_all_totals_warns_and_its_advice_holds() -> None:
    """Without `upsert_by` each new total is a row beside the earlier one."""
    written("all", **{"    upsert_by: shop\n": ""})
    assert "keeps the earlier totals beside it; upsert_by" in command("validate", "app.yaml").output
    written("all")
    assert "warning" not in command("validate", "app.yaml").output


def test_a_corrected_file_that_is_counted_twice_is_said() -> None:
    """Totals that are not kept by file cannot let it go; those of a new table, kept by file, can."""
    text = "inbox\n    on_change: {replaced: supersede, truncated: supersede}"
    written("all")
    run_here()
    Path("inbox/1.csv").write_text("shop,price\na,4\nb,1\n")
    said = command("run", "app.yaml", "--local", "--workers", "1", "--strict")
    assert (said.exit_code, totals()) == (13, {"a": 14, "b": 2})
    assert (
        "1.csv was read again: what the earlier version gave is still there (sums); it cannot be taken" in said.output
    )
    assert "let on_change say supersede, with which totals are kept by file, and let the app name" in said.output
    written("all", inbox=text, journal="journal2", **{"out/sums": "out/other"})
    run_here()
    assert totals("out/other") == {"a": 4, "b": 1}
    Path("inbox/1.csv").write_text("shop,price\na,5\n")
    run_here()
    assert totals("out/other") == {"a": 5}


def test_totals_do_not_begin_in_the_middle() -> None:
    """An operator that was not there, or said `over: run`, is refused; a new table and --fresh give whole totals."""
    run_here()
    Path("inbox/2.csv").write_text("shop,price\na,7\n")
    written("all")
    with pytest.raises(JournalError, match="its totals would lack their records"):
        run_here()
    assert totals() == {"a": 10, "b": 1}
    written("all", **{"out/sums": "out/other"})
    assert command("run", "app.yaml", "--local", "--workers", "1", "--fresh").exit_code == 0
    assert totals("out/other") == {"a": 17, "b": 1}
    written("run", **{"out/sums": "out/other"})
    run_here()
    written("all", **{"out/sums": "out/other"})
    with pytest.raises(JournalError, match="its totals would lack their records"):
        run_here()


@pytest.mark.parametrize(
    "change",
    [{"    by: shop\n    over": "    by: {shop: 'upper(shop)'}\n    over"}, {"n: count(*)": "n: count(price)"}],
)
def test_other_groups_or_results_are_refused(change: dict[str, str]) -> None:
    """What was added up says nothing of them."""
    written("all")
    run_here()
    written("all", **change)
    with pytest.raises(JournalError, match="has left state by key, and now has other keys: sums"):
        run_here()


def test_a_query_gives_totals_over_runs() -> None:
    """`group by` does as Aggregate; what chooses among all groups, or counts totals again, is refused."""
    query = "select shop, sum(price) as total from input where price > 0 group by shop"
    text = APP[: APP.index("  - name: sums")] + f"  - sql: {query}\n    over: all\n"
    table = APP[APP.index("  - table") :]
    Path("app.yaml").write_text(text + table)
    run_here()
    Path("inbox/2.csv").write_text("shop,price\na,7\nb,-5\n")
    run_here()
    assert totals() == {"a": 17, "b": 1}
    for other in (f"{query} order by total", f"select sum(total) as s from ({query})"):
        Path("app.yaml").write_text(text.replace(query, other) + table)
        with pytest.raises(SpecError, match=r"over: all (has no result with all groups|is for a query with one group)"):
            load_app("app.yaml")
    Path("app.yaml").write_text(f"{text}  - aggregate: {{s: sum(total)}}\n    by: shop\n{table}")
    with pytest.raises(PlanError, match="would count a group of operator 'sql' again each time"):
        load_app("app.yaml")


KEYS = st.sampled_from([None, "a", "b", "c"])
NUMBERS = st.sampled_from([None, 0.0, -0.0, 1.5, math.nan])
PIECES = st.lists(st.tuples(st.integers(1, 5), st.lists(st.tuples(KEYS, NUMBERS, st.integers(-9, 9)))), max_size=5)


@settings(max_examples=examples(100))
@given(PIECES)
def test_any_division_of_the_state_gives_the_same_totals(windows: list[tuple[int, list[tuple[Any, Any, int]]]]) -> None:
    """Two keys, of which one is a double: NaN and null are groups, and the zeros are one."""
    declared: dict[str, Any] = {"by": ["k", "d"], "columns": {"n": "count(*)", "s": "sum(v)", "m": "min(d)"}}
    kept: list[KeyedSnapshot | None] = []
    newest: dict[str, tuple[int, int]] = {}
    expected: dict[str, tuple[int, int]] = {}
    codec = GroupKeys(("k", "d"))
    for window, (count, rows) in enumerate(windows, start=1):
        whole = AggregateTotals(**declared)
        shares = whole.split_state(whole.merge_states(kept), count)
        kept = []
        for key in {str((k, None if d is None else d + 0.0)) for k, d, _ in rows}:
            own = [v for k, d, v in rows if str((k, None if d is None else d + 0.0)) == key]
            n, total = expected.get(key, (0, 0))
            expected[key] = n + len(own), total + sum(own)
        schema = pa.schema([("k", pa.string()), ("d", pa.float64()), ("v", pa.int64())])
        records = pa.RecordBatch.from_pylist([dict(zip("kdv", row, strict=True)) for row in rows], schema=schema)
        groups = emitted(Aggregate(**declared, over="all"), window, [RecordBatch(records)], None)[1]
        for partition, share in enumerate(shares):
            homes = [partitions_of(codec.keys(each), count) == partition for each in groups]
            own_groups = [each.take(home.nonzero()[0]) for each, home in zip(groups, homes, strict=True)]
            state, found = emitted(AggregateTotals(**declared), window, own_groups, share)
            kept.append(state)
            for row in (row for each in found for row in each.to_pylist()):
                newest[str((row["k"], row["d"]))] = row["n"], row["s"]
    assert newest == expected


def emitted(operator: Any, window: int, batches: list[RecordBatch], state: Any) -> tuple[Any, list[RecordBatch]]:
    """The state of an operator after a window, and the batches that it emits."""
    found: list[RecordBatch] = []
    operator.output.connect(found.append)
    operator.setup(OperatorContext("app", "sums"))
    if state is not None:
        operator.restore(state)
    operator.begin_window(window)
    for each in batches:
        operator.take(each)
    operator.end_window()
    return operator.snapshot(), found


@pytest.mark.spark
@pytest.mark.nightly
def test_totals_over_runs_are_the_same_on_spark(folder: Path) -> None:
    """Each run is a process with a Spark of its own, and another number of tasks."""
    written("all")
    for cores, rows in ((2, ""), (3, "a,7\nc,1\n")):
        (folder / "inbox" / "2.csv").write_text(f"shop,price\n{rows}")
        done = dagflow_command(["run", "app.yaml", "--master", f"local[{cores}]"], cwd=folder)
        assert done.returncode == 0, done.stderr
    assert totals() == {"a": 17, "b": 1, "c": 1}
