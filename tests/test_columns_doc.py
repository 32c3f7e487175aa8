"""The apps of docs/columns.md run, and docs/expressions.md lists what there is."""

from __future__ import annotations

import contextlib
import re
import shutil
from pathlib import Path

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from operators.expressions.functions import FUNCTIONS
from tests.sql import test_against_duckdb as duckdb_tests
from tests.sql import test_against_spark as spark_tests
from tests.sql.cases import EXPRESSIONS

ROOT = Path(__file__).parent.parent
PAGE = "".join((ROOT / "docs" / name).read_text("utf-8") for name in ("columns.md", "expressions.md"))
TEXT = " ".join(PAGE.split())


def run_app(name: str, place: Path) -> None:
    """Run an app of the page on the input of the project."""
    (app,) = re.findall(rf"```yaml\n# {name}\n(.*?)```", PAGE, re.DOTALL)
    (place / name).write_text(app)
    shutil.copytree(ROOT / "data", place / "data")
    with contextlib.chdir(place):
        run(load_app(name), runtime=InlineRuntime)


def lines_of(folder: Path) -> list[str]:
    """The lines of all files, in order of their names."""
    return [line for path in sorted(folder.iterdir()) for line in path.read_text("utf-8").splitlines()]


def test_the_app_of_select_computes_totals(tmp_path: Path) -> None:
    """Orders that are paid have a gross price and a month."""
    run_app("totals.yaml", tmp_path)
    header, first, *_ = lines_of(tmp_path / "out" / "totals")
    assert header == "number,placed,price,paid,gross,month"
    assert first == "2003,2026-04-04,628.64,true,754.37,4"


def test_the_app_of_parse_counts_requests(tmp_path: Path) -> None:
    """A line that is no request is kept aside."""
    line = '1.2.3.4 - - [{}] "GET / HTTP/1.1" 200 {}'
    times = ["31/Jan/2024:10:00:00 +0100", "31/Jan/2024:09:59:59 +0000", "31/Jan/2024:10:00:00 +0000"]
    lines = [line.format(time, size) for time, size in zip(times, ["10", "-", "5"], strict=True)]
    (tmp_path / "access.log").write_text("\n".join([*lines, "no request", ""]))
    run_app("access.yaml", tmp_path)
    assert lines_of(tmp_path / "out" / "access") == [
        "hour,status,requests,bytes",
        "2024-01-31T09:00:00.000000Z,200,2,10",
        "2024-01-31T10:00:00.000000Z,200,1,5",
    ]
    (reject,) = lines_of(tmp_path / "out" / "access-refused")
    assert "the record does not match regex, in: no request" in reject


def test_the_app_of_enrich_joins_with_rates(tmp_path: Path) -> None:
    """A record in a currency without a rate is kept aside."""
    (tmp_path / "sales").mkdir()
    (tmp_path / "sales" / "a.csv").write_text("number,currency,amount\n1,USD,100.00\n2,XXX,1.00\n3,EUR,2.50\n")
    (tmp_path / "rates.csv").write_text("code;name;rate\nEUR;Euro;1\nUSD;Dollar;0.9321\n")
    run_app("regions.yaml", tmp_path)
    assert lines_of(tmp_path / "out" / "regions") == [
        "number,currency,amount,rate,currency_name,euros",
        "1,USD,100.00,0.9321,Dollar,93.21",
        "3,EUR,2.50,1.0000,Euro,2.50",
    ]
    (reject,) = lines_of(tmp_path / "out" / "regions-refused")
    assert "has no row with currency 'XXX'" in reject


def test_the_app_of_sql_gives_the_revenue(tmp_path: Path) -> None:
    """The revenue of sales over 1 in currencies with several of them."""
    (tmp_path / "sales").mkdir()
    sales = ["1,USD,100.00", "2,USD,0.50", "3,USD,10.00", "4,EUR,2.50", "5,EUR,2.50", "6,GBP,9.99"]
    (tmp_path / "sales" / "a.csv").write_text("\n".join(["number,currency,amount", *sales, ""]))
    (tmp_path / "rates.csv").write_text("code;name;rate\nEUR;Euro;1\nUSD;Dollar;0.9321\nGBP;Pound;1.1\n")
    run_app("revenue.yaml", tmp_path)
    assert lines_of(tmp_path / "out" / "revenue") == ["currency,sales,euros", "Dollar,2,102.53", "Euro,2,5.00"]


def test_each_function_is_on_the_page() -> None:
    """As it is used."""
    for function in FUNCTIONS.values():
        assert f"`{function.usage}`" in PAGE, function.usage


def test_each_difference_is_on_the_page() -> None:
    """In the words of the tests that know it."""
    differences = [*duckdb_tests.DIFFERENCES, *spark_tests.REFUSED, *spark_tests.OTHER_TYPES]
    assert [difference for difference in differences if difference not in TEXT] == []
    assert f"{len(EXPRESSIONS)} expressions are compared" in TEXT
