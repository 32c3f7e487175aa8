"""An app of the project that adds to a table, on Spark and through the command line."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from tests.cli.processes import dagflow_command

pytestmark = [pytest.mark.spark, pytest.mark.e2e]

COLUMNS = ["order", "placed", "price", "paid", "note"]
RUN = ["run", "apps/orders_to_delta.yaml", "--json"]


def orders(place: Path) -> Counter[tuple[str, ...]]:
    """The rows of the export, by another library."""
    found: Counter[tuple[str, ...]] = Counter()
    for path in sorted((place / "data" / "orders").iterdir()):
        with path.open(newline="", encoding="utf-8") as file:
            found.update(tuple(row[name] for name in COLUMNS) for row in csv.DictReader(file))
    return found


def rows(place: Path) -> Counter[tuple[str, ...]]:
    """The rows of the table, as they stand in the export."""
    table = pa.table(DeltaTable(str(place / "out" / "orders_delta")).to_pyarrow_table())
    return Counter(
        tuple(str(row[n]).lower() if n == "paid" else str(row[n]) for n in COLUMNS) for row in table.to_pylist()
    )


def test_files_of_the_next_day_are_added_to_the_table(place: Path) -> None:
    """All rows are there once, with their types; the second run reads new files only, and makes the second version."""
    valid = dagflow_command(["validate", "apps/orders_to_delta.yaml"], cwd=place)
    assert valid.returncode == 0, valid.stderr
    first = dagflow_command(RUN, cwd=place)
    assert first.returncode == 0, first.stderr
    assert rows(place) == orders(place)
    (place / "data" / "orders" / "next.csv").write_text(
        "order,placed,price,paid,note\n9001,2026-12-24,1.50,true,late\n"
    )
    second = dagflow_command(RUN, cwd=place)
    assert (second.returncode, json.loads(second.stdout)["blocks"]) == (0, 1), second.stderr
    assert rows(place) == orders(place)
    assert DeltaTable(str(place / "out" / "orders_delta")).version() == 1
    refused = dagflow_command(["validate", RUN[1], "--set", "table.partition_by=placed"], cwd=place)
    assert refused.returncode == 2
    assert "orders_to_delta.yaml:22:3: operator 'table': table delta:" in refused.stderr
    assert "is partitioned by paid, and partition_by says placed" in refused.stderr
