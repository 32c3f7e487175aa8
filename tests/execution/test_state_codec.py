"""State as data: checkpoints hold named fields."""

from __future__ import annotations

import base64
import math
import pickle
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow import Operator, OperatorContext
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import JournalError, OperatorError
from dagflow.execution.state_codec import StateCodec
from dagflow.journal.frames import decode_all, encode
from dagflow.journal.saved_state import SavedState
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.operators import OperatorHarness
from tests.engine.sample_app import app_of, published
from tests.execution.sample_operators import DropPrefixed
from tests.nightly import by_day

ROOT = Path(__file__).parents[2]
PICKLE = re.compile(rb"\x80[\x02-\x05](\x95|[\x28-\x7d\x8c-\x94])")
"""How a pickle of protocol 2 to 5 begins: with its version, and in 4 and 5 most often with a frame."""


def texts_in(value: Any) -> Iterator[str]:
    """Every text of a JSON value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, each in value.items():
            yield from (key, *texts_in(each))
    elif isinstance(value, list):
        for each in value:
            yield from texts_in(each)


def has_pickle(text: str) -> bool:
    """Whether a text is a pickle in base64, or holds one as it is."""
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        data = b""
    return bool(PICKLE.match(data) or PICKLE.search(text.encode("latin-1", "replace")))


def pickles_in(checkpoint: Path) -> list[str]:
    """The names of the objects of a checkpoint that hold a pickle."""
    found = []
    for path in sorted(path for path in checkpoint.rglob("*") if path.is_file()):
        name, data = str(path.relative_to(checkpoint)), path.read_bytes()
        if name.split("/")[0] in ("log", "snap", "archive", "epoch", "reprocessed", "aside"):
            values = list(decode_all(data, name))
            found += [name for value in values if any(map(has_pickle, texts_in(value)))]
        elif name.startswith("segments/") and PICKLE.search(data):
            found.append(name)
    return found


def test_a_pickle_in_a_checkpoint_is_found(tmp_path: Path) -> None:
    """The checks below would fail where they should."""
    name = tmp_path / "snap" / "1"
    name.parent.mkdir()
    name.write_bytes(encode({"state": base64.b64encode(pickle.dumps([1])).decode()}))
    assert pickles_in(tmp_path) == ["snap/1"]


@pytest.mark.parametrize("app", by_day(5, sorted(path.name for path in (ROOT / "apps").glob("*.yaml"))))
def test_checkpoints_of_the_apps_hold_no_pickle(app: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Plans, states and events of every app that ships are data."""
    monkeypatch.chdir(tmp_path)
    for name in ("apps", "data"):
        shutil.copytree(ROOT / name, tmp_path / name)
    if app == "follow_logs.yaml":
        generator = [sys.executable, "apps/log_generator.py", "out/live_logs", "--seconds", "0.2"]
        subprocess.run(generator, check=True, timeout=60)
    checkpoint = tmp_path / "checkpoint"
    summary = run(load_app(f"apps/{app}"), RunOptions(checkpoint=str(checkpoint)), runtime=InlineRuntime)
    assert summary.windows
    assert pickles_in(checkpoint) == []


EVERY_STATE = """\
name: every-state
attributes: {checkpoint: checkpoint}
operators:
  splitter:
    class: FileSplitterInput
    properties: {files: in, block_size: 8, blocks_threshold: 1, unterminated: wait}
  reader: {class: BlockReader, properties: {format: {type: csv, header: false, columns: [key, value]}}}
  lines: {class: BlockReader}
  keep: {class: Deduplicator, partition: 1}
  count: {class: KeyCounter, partition: 1}
  rows: {class: RecordWriter, properties: {path: out/rows}}
  writer: {class: RecordWriter, properties: {path: out/records}}
  counts: {class: RecordWriter, properties: {path: out/counts}}
  completion: {class: FileCompletion}
  found: {class: MetadataWriter, properties: {path: out/found}}
  notes: {class: MetadataWriter, properties: {path: out/notes}}
  cleaner: {class: SourceCleaner, properties: {action: remove}}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: [reader.blocks_metadata_input, lines.blocks_metadata_input]}
  parsed: {from: reader.messages, to: rows.input}
  records: {from: lines.messages, to: [keep.input, count.input]}
  kept: {from: keep.output, to: writer.input}
  counted: {from: count.output, to: counts.input}
  files: {from: splitter.files_metadata_output, to: [completion.files_metadata_input, found.input]}
  read: {from: lines.blocks_metadata_output, to: [completion.blocks_metadata_input, cleaner.input]}
  done: {from: completion.output, to: notes.input}
"""


def test_checkpoints_of_every_stateful_built_in_hold_no_pickle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Splitter, pre-scan, keyed states, completion, cleaner, and files that wait for results, in several windows."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / name).write_bytes(b'x,"1\n2"\ny,3\nx,4\nzzzzzzzzz,5\n')
    (tmp_path / "app.yaml").write_text(EVERY_STATE)
    assert run(load_app("app.yaml"), runtime=InlineRuntime).windows > 2
    assert pickles_in(tmp_path / "checkpoint") == []


@dataclass(frozen=True)
class SeenState:
    """What an operator has seen."""

    total: int
    names: list[str] = field(default_factory=list)
    raw: bytes = b""
    sizes: dict[int, tuple[int, str]] = field(default_factory=dict)


class DeclaresStateType(Operator):
    """Declares what its state is."""

    state_type: ClassVar[type | None] = SeenState
    state_version: ClassVar[int] = 3


SEEN = st.builds(
    SeenState,
    st.integers(-(2**70), 2**70),
    st.lists(st.text() | st.just("\udcff")),
    st.binary(),
    st.dictionaries(st.integers(), st.tuples(st.integers(), st.text())),
)


@given(SEEN)
def test_state_of_a_declared_type_comes_back_as_it_was(state: SeenState) -> None:
    """Through the journal's JSON, field by field."""
    codec = StateCodec.of_snapshots("typed", DeclaresStateType())
    saved = codec.encode(state)
    assert saved.version == 3
    [data] = decode_all(encode(saved.data), "x")
    assert codec.decode(type(saved)(3, data)) == state


def test_state_of_another_version_is_refused_with_a_way_out() -> None:
    """A program never guesses what a later or an earlier one has left."""
    codec = StateCodec("typed", "snapshot", SeenState, 2)
    saved = StateCodec("typed", "snapshot", SeenState, 3).encode(SeenState(1))
    with pytest.raises(JournalError, match=r"operator 'typed' has left state of version 3, .* knows version 2"):
        codec.decode(saved)


def test_state_of_another_form_is_refused() -> None:
    """A field that is gone or of another type is named."""
    codec = StateCodec("typed", "snapshot", SeenState, 1)
    saved = type(codec.encode(SeenState(1)))(1, {"total": "many"})
    with pytest.raises(JournalError, match=r"another form than SeenState: Expected `int`, got `str`"):
        codec.decode(saved)


def test_a_snapshot_of_another_type_than_declared_is_refused() -> None:
    """Where the operator runs, with its name."""
    with pytest.raises(OperatorError, match=r"snapshot\(\) returned list, and the operator declares SeenState"):
        StateCodec.of_snapshots("typed", DeclaresStateType()).encode([1])


@dataclass(frozen=True)
class MeanState:
    """A state with a whole number."""

    mean: int


def test_a_state_with_other_values_than_its_fields_say_is_refused() -> None:
    """Before it is committed: no later run could take it back."""
    codec = StateCodec("op", "snapshot", MeanState, 1)
    assert codec.decode(codec.encode(MeanState(1))) == MeanState(1)
    wrong: Any = 0.5
    with pytest.raises(OperatorError, match=r"snapshot\(\) returned MeanState with other values.*`int`, got `float`"):
        codec.encode(MeanState(wrong), 1)


@dataclass(frozen=True)
class AnyState:
    """Says little about what it holds."""

    held: Any


class OneMemberEnum(Enum):
    """Is not what JSON says of it."""

    ONE = 1


CHANGED: list[tuple[Any, str]] = [
    ({1: 1}, "held {1: 1} would come back as {'1': 1}"),
    ({1: 1, "1": 2}, "held {1: 1, '1': 2} would come back as {'1': 2}"),
    ([1, b"a"], "held[1] b'a' would come back as 'YQ=='"),
    ([(1, 2)], "held[0] (1, 2) would come back as [1, 2]"),
    ({"a": {1}}, "held['a'] {1} would come back as [1]"),
    (MeanState(1), "held MeanState(mean=1) would come back as {'mean': 1}"),
    (OneMemberEnum.ONE, "held <OneMemberEnum.ONE: 1> would come back as 1"),
]


@pytest.mark.parametrize(("held", "text"), CHANGED, ids=[text for _, text in CHANGED])
def test_a_state_that_would_come_back_as_another_one_is_refused(held: Any, text: str) -> None:
    """Before it is committed, with the part that would be lost."""
    with pytest.raises(
        OperatorError, match=re.escape(f"snapshot() returned AnyState, which is not kept as it is: {text}")
    ):
        StateCodec("op", "snapshot", AnyState, 1).encode(AnyState(held), 1)


@pytest.mark.parametrize("held", [math.nan, [math.nan, None, {"a": [1.5, "b"]}], "\ud800", 2**70], ids=repr)
def test_a_state_of_any_type_that_comes_back_is_kept(held: Any) -> None:
    """What JSON says of it is all that there is, also of what is equal to nothing."""
    codec = StateCodec("op", "snapshot", AnyState, 1)
    assert repr(codec.decode(codec.encode(AnyState(held)))) == repr(AnyState(held))


@dataclass(frozen=True)
class Lengths:
    """How many records there are of each length."""

    counts: dict[int, int]


@dataclass(frozen=True)
class UntypedLengths:
    """The same, by a type that says less."""

    counts: dict[Any, int]


class CountLengths(Operator):
    """Counts records of more than one byte by their lengths, and emits the counts of each window."""

    state_type: ClassVar[type | None] = UntypedLengths
    input = DropPrefixed.input
    output = DropPrefixed.output

    def setup(self, context: OperatorContext) -> None:
        """Begin with none."""
        self.counts: dict[int, int] = {}

    @input.each
    def take(self, record: bytes) -> None:
        """Count it."""
        if len(record) > 1:
            self.counts[len(record)] = self.counts.get(len(record), 0) + 1

    def end_window(self) -> None:
        """Emit the counts."""
        self.output.emit(str(self.counts).replace(" ", "").encode())

    def snapshot(self) -> Any:
        """The counts."""
        assert self.state_type is not None
        return self.state_type(self.counts)

    def restore(self, state: Any) -> None:
        """Count on."""
        self.counts = state.counts


class CountLengthsByType(CountLengths):
    """Mended."""

    state_type = Lengths


def test_a_run_goes_on_when_the_type_says_what_a_field_holds(tmp_path: Path) -> None:
    """Behind windows that were committed, as the error advises; each record counts once."""

    def work(middle: Operator) -> None:
        app = app_of(tmp_path, [b"a", b"bb bb", b"bb ccc"], per_window=1, middle=middle)
        node = replace(app.operators["middle"], partition=1)
        run(replace(app, operators={**app.operators, "middle": node}), runtime=InlineRuntime)

    with pytest.raises(OperatorError, match=r"window 2, .*\n.*declare for each field the type of its values"):
        work(CountLengths())
    work(CountLengthsByType())
    assert published(tmp_path) == [b"{2:2}", b"{2:3,3:1}", b"{}"]


@pytest.mark.parametrize(
    ("state_type", "state", "other"),
    [
        (int, 2**70, "text"),
        (str, "\udcff", 1),
        (dict[int, tuple[int, str]], {3: (1, "a")}, {3: (1, 2)}),
        (list[bytes], [b"\xff"], [1]),
    ],
)
def test_a_state_may_be_of_any_type_that_is_data(state_type: Any, state: Any, other: Any) -> None:
    """It is restored as it was, and a value of another type is refused before the window is committed."""
    codec = StateCodec("op", "snapshot", state_type, 1)
    [data] = decode_all(encode(codec.encode(state).data), "x")
    assert codec.decode(SavedState(1, data)) == state
    with pytest.raises(OperatorError, match=r"snapshot\(\) returned"):
        codec.encode(other)


def test_a_class_with_a_snapshot_says_of_which_type_it_is() -> None:
    """The class is refused when it is defined, with what to add."""
    with pytest.raises(TypeError, match=r"defines snapshot\(\) and no state_type: declare .*`state_type = int`"):
        type("Untyped", (Operator,), {"snapshot": lambda self: 1})


class NeverRestores(Operator):
    """Has a state that it never takes back."""

    state_type = int

    input = DropPrefixed.input

    def snapshot(self) -> int:
        """A number."""
        return 1


def test_a_state_that_is_never_taken_back_is_refused() -> None:
    """It would be lost at the next window."""
    harness = OperatorHarness(NeverRestores())
    with pytest.raises(OperatorError, match=r"snapshot\(\) returned int, and the class has no restore\(state\)"):
        harness.saved_state()
