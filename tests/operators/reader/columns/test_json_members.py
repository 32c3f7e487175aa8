"""What reads flat objects: Arrow at first, and machine code in a process that has read much."""

from __future__ import annotations

import sys
from types import ModuleType

import pyarrow as pa
import pytest

from dagflow.api.records import Delimiters, RecordBatch
from operators.reader.columns import json_members
from operators.reader.columns.compiled_objects import LEAST_LINES
from operators.reader.columns.json_members import read_flat_objects
from operators.reader.columns.machine_code import MachineCode

SCHEMA = pa.schema({"a": pa.int64()})
MANY_ORDERS = RecordBatch.raw(
    [b'{%s"a": %d}' % (b'"other": 1, ' * (row % 20), row) for row in range(2 * LEAST_LINES)], Delimiters((b"\n",))
)


def pays_behind(size_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let machine code pay behind so many bytes of objects, in a process that has read none."""
    code = MachineCode(json_members.FLAT_READER.path, size_bytes)
    monkeypatch.setattr(json_members, "FLAT_READER", code)


def test_machine_code_reads_once_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not before: to import it takes longer than to read little."""
    pays_behind(100_000, monkeypatch)
    found = [read_flat_objects(MANY_ORDERS, SCHEMA, takes_others=True) for _ in range(5)]
    assert [each is not None for each in found] == [False, True, True, True, True]
    assert found[1] is not None
    assert found[1][0]["a"].to_pylist() == list(range(2 * LEAST_LINES))


def test_machine_code_does_not_pay_for_objects_in_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would be imported, and leave all of them to Arrow."""
    pays_behind(1, monkeypatch)
    schema = SCHEMA.append(pa.field("inner", pa.struct([("b", pa.int64())])))
    assert [read_flat_objects(MANY_ORDERS, schema, takes_others=True) for _ in range(3)] == [None] * 3


@pytest.mark.parametrize("error", [ImportError, RuntimeError, PermissionError, EOFError])
def test_arrow_reads_on_where_numba_cannot_be_used(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """For instance beside a numpy that is too new for it, or with a broken cache; a warning says so."""

    def fail(name: str) -> object:
        raise error("it does not work")

    broken = ModuleType("operators.reader.columns.compiled_objects")
    monkeypatch.setattr(broken, "__getattr__", fail, raising=False)
    monkeypatch.setitem(sys.modules, broken.__name__, broken)
    pays_behind(1, monkeypatch)
    assert read_flat_objects(MANY_ORDERS, SCHEMA, takes_others=True) is None
    assert "it does not work" in caplog.text


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("importlib.util.find_spec", lambda name: None),
        ("sys.byteorder", "big"),
        (
            "operators.reader.columns.machine_code.__file__",
            "dagflow.zip/operators/reader/columns/json_members.py",
        ),
    ],
)
def test_arrow_reads_on_where_there_is_no_machine_code(
    name: str, value: object, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Without a word: numba is an extra, and what Spark ships is an archive."""
    monkeypatch.setattr(name, value)
    pays_behind(1, monkeypatch)
    assert read_flat_objects(MANY_ORDERS, SCHEMA, takes_others=True) is None
    assert caplog.text == ""
