"""State by key when the column of the keys gets another type: keys of one kind equal none of another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from dagflow.engine.operator_state import OperatorStates, SegmentStore
from dagflow.engine.run import run
from dagflow.errors import JournalError, RecordError
from dagflow.journal.reader import read_state
from dagflow.plan.load import load_app
from dagflow.plan.placement import PlacedApp
from dagflow.plan.stream_columns import arriving_key_families
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.nightly import by_day

STORAGE = StorageContext.default()

APP = """\
name: typed
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader, properties: {format: FORMAT}}
  keyed: {class: CLASS, partition: PARTITION}
  writer: {class: RecordWriter, properties: {path: out, format: json_lines}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  rows: {from: reader.messages, to: keyed.input}
  found: {from: keyed.output, to: writer.input}
"""

OPERATORS = {
    "Deduplicator, properties: {key: id}": "{by: id}",
    "KeyCounter, properties: {key: id}": "{by: id}",
    "Check, properties: {expect: unique(id)}": "1",
}


def csv(kind: str) -> str:
    """The format with a type for the key."""
    return f"{{type: csv, columns: {{id: '{kind}'}}}}"


def write_app(format: str, operator: str = "Deduplicator, properties: {key: id}") -> None:
    """Write the app, and one more file with the same keys."""
    Path("in").mkdir(exist_ok=True)
    number = len(list(Path("in").iterdir()))
    Path("in", f"{number}.csv").write_text("id\n1\n2\n")
    text = APP.replace("FORMAT", format).replace("CLASS", operator).replace("PARTITION", OPERATORS[operator])
    Path("app.yaml").write_text(text)


def again() -> int:
    """Run the app; the number of records that it has published so far."""
    run(load_app("app.yaml"), runtime=InlineRuntime)
    return sum(len(path.read_text().splitlines()) for path in Path("out").glob("part-*"))


@pytest.mark.parametrize("operator", OPERATORS)
@pytest.mark.parametrize("types", by_day(1, [("string", "int64"), ("int64", "string"), ("int64", "bool")]))
def test_keys_of_another_kind_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str, types: tuple[str, str]
) -> None:
    """Before a window is planned; with the type that it had, all keys are found again."""
    monkeypatch.chdir(tmp_path)
    was, now = types
    write_app(csv(was), operator)
    assert again() == 2
    write_app(csv(now), operator)
    before = read_state(STORAGE.objects("journal"))
    for _ in range(2):
        with pytest.raises(
            JournalError,
            match=r"column 'id', which were \w+ and are .* now: .*\n.*give the column the type that it had",
        ):
            again()
    assert read_state(STORAGE.objects("journal")).last_planned == before.last_planned
    write_app(csv(was), operator)
    if "Check" in operator:
        with pytest.raises(RecordError, match="an earlier record, of window 1, has the same value"):
            again()
    else:
        assert again() == (4 if "Counter" in operator else 2)


def test_keys_that_may_be_equal_are_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers are equal whatever their types and digits."""
    monkeypatch.chdir(tmp_path)
    for kind in ("int64", "decimal(9, 2)", "float64", "int32"):
        write_app(csv(kind))
        assert again() == 2


def test_a_kind_is_unknown_once_a_run_did_not_know_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Types that are found in the input are those of each batch: no plan knows them, and keys of any kind may come."""
    monkeypatch.chdir(tmp_path)
    write_app(csv("string"))
    assert again() == 2
    write_app("{type: json_lines, columns: as_found}")
    Path("in", "1.csv").write_text('{"id": 5}\n{"id": 6}\n')
    assert again() == 4
    Path("in", "1.csv").unlink()
    for kind in ("int64", "string", "int64"):
        write_app(csv(kind))
        again()


def test_a_checkpoint_that_does_not_say_the_kind_is_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a run has left it that did not know the type of the column."""
    monkeypatch.chdir(tmp_path)
    write_app(csv("string"))
    again()
    kept = read_state(STORAGE.objects("journal")).committed_state.partitions["keyed"]
    write_app(csv("int64"))
    app = load_app("app.yaml")
    placed = PlacedApp.of(app, STORAGE)
    assert arriving_key_families(app) == {"keyed": "numbers"}
    states = OperatorStates(
        placed.plan, placed.operators, SegmentStore(STORAGE.objects("journal"), 9), arriving_key_families(app)
    )
    states.restore({"keyed": [each and replace(each, key_family=None) for each in kept]}, ["keyed"])
    # What this run adds is marked with no kind either: the keys that were there are of an unknown one.
    states.restore({"keyed": kept}, ["keyed"])
    states = OperatorStates(
        placed.plan, placed.operators, SegmentStore(STORAGE.objects("journal"), 9), arriving_key_families(app)
    )
    with pytest.raises(JournalError, match="give the column the type that it had"):
        states.restore({"keyed": kept}, ["keyed"])
