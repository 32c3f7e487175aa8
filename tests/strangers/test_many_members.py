"""Objects of JSON that would make far too many columns."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import pytest

from operators.reader.byte_accounting import BlockAccounting
from operators.reader.formats import RECORD_FORMATS
from operators.testing import URL, MemorySource, block_of


def read(objects: list[Any], **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The rows of a file with these objects, and why others were refused."""
    made = RECORD_FORMATS.make({"type": "json_lines", **options})
    content = b"".join(json.dumps(each).encode() + b"\n" for each in objects)
    source, block = MemorySource(content), block_of(content, 0, len(content))
    refused: list[bytes] = []
    accounting = BlockAccounting(URL, Counter(), refused.append)
    made.decide(made.decision(made.read(source, block, accounting)))
    rows: list[dict[str, Any]] = []
    for batch in made.read(source, block, accounting):
        parsed = accounting.parse(made, batch)
        rows += parsed.batch.to_arrow().to_pylist() if len(parsed.raw) else []
    return rows, [json.loads(each)["reason"] for each in refused]


@pytest.mark.parametrize("columns", ["infer", "as_found"])
@pytest.mark.parametrize("wide", [{}, {"a": {}}, {"a": [{}]}], ids=["beside each other", "in an object", "in an array"])
def test_an_object_with_too_many_members_is_refused(columns: str, wide: dict[str, Any]) -> None:
    """Before any column is made of it, wherever they are; the other objects are read."""
    members = {f"m{number}": 1 for number in range(20_000)}
    inside = wide.get("a", wide)
    (inside[0] if isinstance(inside, list) else inside).update(members)
    rows, [reason] = read([wide, {"n": 1}], columns=columns)
    assert rows == [{"n": 1}]
    assert reason in [f"it has {count} columns, more than max_columns, 16,384" for count in ("20,000", "20,001")]


def test_many_objects_of_an_array_have_few_members() -> None:
    """Members of the same name are one column."""
    rows, reasons = read([{"a": [{"b": 1}] * 20_000}], columns="as_found", max_columns=2)
    assert (len(rows[0]["a"]), reasons) == (20_000, [])
    assert read([{"a": 1, "b": 2, "c": 3}], columns="as_found", max_columns=2)[1] != []
