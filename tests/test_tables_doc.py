"""The app of docs/tables.md runs."""

import contextlib
import re
import shutil
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable

from dagflow.engine.run import run
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime

ROOT = Path(__file__).parent.parent


def test_the_app_of_the_page_makes_a_table(tmp_path: Path) -> None:
    """Rows of the sample input become rows of a Delta table with decimals."""
    (app,) = re.findall(
        r"```yaml\n# orders.yaml\n(.*?)```", (ROOT / "docs" / "tables.md").read_text("utf-8"), re.DOTALL
    )
    (tmp_path / "orders.yaml").write_text(app)
    shutil.copytree(ROOT / "data" / "orders", tmp_path / "data" / "orders")
    with contextlib.chdir(tmp_path):
        run(load_app("orders.yaml"), runtime=InlineRuntime)
    table = pa.table(DeltaTable(str(tmp_path / "out" / "orders")).to_pyarrow_table())
    assert len(table) == 48 and all(isinstance(value, Decimal) for value in table["price"].to_pylist())
