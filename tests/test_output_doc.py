"""The app of docs/output.md runs, and pages describe all formats."""

import contextlib
import re
import shutil
from collections.abc import Iterable
from decimal import Decimal
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from operators.reader.formats import RECORD_FORMATS
from operators.sink.formats import SINK_FORMATS

ROOT = Path(__file__).parent.parent


def test_the_app_of_the_page_writes_both_formats(tmp_path: Path) -> None:
    """Rows of the sample input become Parquet with decimals, and compressed CSV."""
    (app,) = re.findall(
        r"```yaml\n# orders.yaml\n(.*?)```", (ROOT / "docs" / "output.md").read_text("utf-8"), re.DOTALL
    )
    (tmp_path / "orders.yaml").write_text(app)
    shutil.copytree(ROOT / "data" / "orders", tmp_path / "data" / "orders")
    with contextlib.chdir(tmp_path):
        run(load_app("orders.yaml"), runtime=InlineRuntime)
    tables = [pq.read_table(path) for path in (tmp_path / "out" / "table").glob("*.parquet")]
    assert all(isinstance(value, Decimal) for table in tables for value in table.column("price").to_pylist())
    assert sum(len(table) for table in tables) > 0
    assert list((tmp_path / "out" / "lines").glob("*.csv.zst"))


@pytest.mark.parametrize(
    ("page", "formats"), [("output.md", SINK_FORMATS.class_paths), ("records.md", RECORD_FORMATS.class_paths)]
)
def test_each_built_in_format_is_on_its_page(page: str, formats: Iterable[str]) -> None:
    """A reader of the page learns of it."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    assert [name for name in formats if f"`{name}`" not in text] == []
