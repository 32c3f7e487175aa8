"""Columns that are inferred: once for a checkpoint, by the first file with records, and the same however it is cut."""

from __future__ import annotations

import gzip
import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.engine.test_driver import crashing
from tests.nightly import examples
from tests.operators.reader.test_block_processor_accounting import published, run_app

INFER = "format: {type: json_lines, columns: infer}"
FILES = {
    "0": b"\nnot json\n{}\n",
    "a": b'{"n":1,"t":"2024-01-01T10:00:00","x":null}\n{"n":9007199254740993,"t":"2024-01-01T10:00:00Z"}\n',
    "b": b'{"n":"x"}\n{"n":9007199254740992.0}\n{"n":2,"n":3}\n{"n":1e999}\n{"n":5,"z":1}\n{"n":7}\n',
    "big": b'{"n":8,"t":"' + b"x" * 300 + b'"}\n',
    "c.gz": gzip.compress(b'{"n":9}\n{"x":true}\n'),
}
CUTS: list[dict[str, Any]] = [
    {"block_size": 7},
    {"block_size": 50, "threshold": 1},
    {"block_size": 1 << 20, "batch_bytes": 1 << 20},
    {"block_size": 100, "batch_bytes": 100, "threshold": 1},
]


def outcome(work: Path) -> tuple[list[bytes], list[Any]]:
    """What was published and what was refused, in any order."""
    rejects = [json.loads(line) for line in published(work / "rejects").splitlines()]
    origins = [(Path(each["url"]).name, each["offset"], each["reason"]) for each in rejects]
    return sorted(published(work / "out").splitlines()), sorted(origins)


def test_the_first_file_with_records_decides_for_all(tmp_path: Path) -> None:
    """In every cut; what contradicts it is a reject, in later runs too."""
    found = []
    for number, cut in enumerate(CUTS):
        work = tmp_path / str(number)
        work.mkdir()
        accounting = run_app(work, INFER, FILES, **cut).byte_accounting()
        assert accounting.pop("bytes") == sum(accounting.values())
        found.append(outcome(work))
        run_app(work, INFER, {"0later": b'{"n":"late"}\n{"n":10}\n'}, **cut)
        records, rejects = outcome(work)
        assert b'{"n":10,"t":null,"x":null}' in records
        assert ("0later", 0) in [each[:2] for each in rejects]
    assert all(each == found[0] for each in found)
    records, rejects = found[0]
    assert [json.loads(each)["n"] for each in records] == [1, 7, 8, 9, 9007199254740993]
    positions = [("0", 1), ("0", 10), ("b", 0), ("b", 10), ("b", 35), ("b", 49), ("b", 61), ("c.gz", 8)]
    assert [each[:2] for each in rejects] == positions


def test_a_restart_and_a_replay_read_by_what_was_decided(tmp_path: Path) -> None:
    """It is in the plan, so that files which are there by then, and come first, change nothing."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run_app(tmp_path, INFER, {"b": b'{"n":1}\n'}, runtime=crashing(1))
    run_app(tmp_path, INFER, {"a": b'{"n":"text"}\n{"n":2}\n'})
    expected = [b'{"n":1}', b'{"n":2}'], [("a", 0, """column 'n' (int64, as inferred): 'text' is no number""")]
    for _ in range(2):
        records, [(name, offset, reason)] = outcome(tmp_path)
        assert (records, [(name, offset, reason.partition(", in: ")[0])]) == expected
        replay_windows(load_app(str(tmp_path / "app.yaml")), RunOptions(), [1, 2], runtime=InlineRuntime)


def test_columns_of_the_app_replace_those_that_were_inferred(tmp_path: Path) -> None:
    """Also for what was planned before, and nothing is missing."""
    run_app(tmp_path, INFER, {"b": b'{"n":1}\n'}, takes_rejects=False)
    (tmp_path / "in" / "c").write_bytes(b'{"n":1.5}\n')
    with pytest.raises(DagflowError, match=r"column 'n' \(int64, as inferred\): 1\.5 is no whole number"):
        run_app(tmp_path, INFER, takes_rejects=False)
    run_app(tmp_path, "format: {type: json_lines, columns: {n: double}}", takes_rejects=False)
    assert sorted(published(tmp_path / "out").splitlines()) == [b'{"n":1.5}', b'{"n":1}']


VALUES = st.none() | st.booleans() | st.integers(0, 3) | st.just(0.5) | st.text("x\n", max_size=2) | st.just([1])
OBJECTS = st.dictionaries(st.sampled_from("ab"), VALUES).map(lambda each: json.dumps(each).encode())
LINES = st.lists(OBJECTS | st.sampled_from([b"", b"no", b'{"a":1,"a":1}', b'{"a":1e999}']), max_size=6)


@settings(max_examples=examples(15))  # each runs an app four times
@given(st.lists(LINES.map(b"\n".join), min_size=1, max_size=3))
def test_any_cut_of_any_files_gives_the_same(contents: list[bytes]) -> None:
    """Records, rejects and columns."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number, cut in enumerate(CUTS):
            work = Path(folder, str(number))
            work.mkdir()
            run_app(work, INFER, {str(at): content for at, content in enumerate(contents)}, **cut)
            found.append(outcome(work))
    assert all(each == found[0] for each in found)
