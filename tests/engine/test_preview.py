"""What a preview shows is what a run would make of the same input."""

from __future__ import annotations

import contextlib
import gzip
import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from dagflow import InputPort, Operator, OutputPort, RecordBatch
from dagflow.engine.preview import Preview, preview
from dagflow.engine.preview_chain import PreviewOptions
from dagflow.engine.run import run
from dagflow.errors import MissingError, PlanError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from tests.nightly import IS_NIGHTLY, by_day

APP = """\
name: sample
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader, properties: {format: FORMAT}}
  MIDDLE
  writer: {class: RecordWriter, properties: {path: out, format: json_lines}}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: middle.input}
  kept: {from: middle.output, to: writer.input}
"""
FILTER = 'middle: {class: RecordFilter, properties: {drop: {prefix: "#"}}, partition: parallel}'
PASSING = "middle: {class: tests.engine.test_preview.ForwardsRecords, partition: parallel}"
FAILING = "middle: {class: tests.engine.test_preview.FailsAtTwelve, partition: parallel}"
CSV = b'a,b\r\n1,"x\n\n"",\n"\r\n2,y\r\n3,"\r\n4,\n"\n5,z\n'


class ForwardsRecords(Operator):
    """Passes on what arrives."""

    input = InputPort()
    output = OutputPort()

    @input.batch
    def take(self, batch: RecordBatch) -> None:
        """Emit the batch."""
        self.output.emit(batch)


class FailsAtTwelve(Operator):
    """Refuses one record."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def take(self, record: bytes) -> None:
        """Emit the record, or fail."""
        if record == b"12":
            raise ValueError("twelve")
        self.output.emit(record)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory with a directory for input."""
    (tmp_path / "in").mkdir()
    with contextlib.chdir(tmp_path):
        yield tmp_path


def app(format: str = "lines", middle: str = FILTER) -> str:
    """An app file."""
    Path("app.yaml").write_text(APP.replace("FORMAT", format).replace("MIDDLE", middle))
    return "app.yaml"


def seen(path: str, **options: object) -> Preview:
    """What a preview of an app file shows."""
    return preview(load_app(path), PreviewOptions(**options))  # type: ignore[arg-type]  # keywords of the options


def values(found: Preview) -> list[object]:
    """The records alone: of raw ones the bytes."""
    return [each.values.get("record", dict(each.values)) for each in found.records]


def written() -> list[Any]:
    """What a run of app.yaml publishes."""
    run(load_app("app.yaml"), runtime=InlineRuntime)
    lines = [line for path in sorted(Path("out").iterdir()) if path.is_file() for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize("at", [None, "writer.input", "middle.output", "middle"])
def test_a_preview_shows_the_records_that_a_run_writes(at: str | None) -> None:
    """The records before the writer, with file and offset, and what the filter kept; nothing is written."""
    Path("in/a.txt").write_text("one\n#two\nthree\n")
    Path("in/b.txt").write_text("#four\nfive")
    found = seen(app(), at=at)
    positions = [(Path(each.file).name, each.offset) for each in found.records]
    assert positions == [("a.txt", 0), ("a.txt", 9), ("b.txt", 6)]
    assert (found.count, found.is_complete, dict(found.columns)) == (3, True, {"record": "binary"})
    assert [(each.name, each.taken, dict(each.given)) for each in found.operators] == [
        ("reader", None, {"messages": 5}),
        ("middle", 5, {"output": 3}),
    ]
    assert {path.name for path in Path().iterdir()} == {"app.yaml", "in"}
    shown = [value.decode() for value in values(found) if isinstance(value, bytes)]
    assert sorted(shown) == sorted(row["record"] for row in written())


def test_a_preview_leaves_the_app_as_it_is() -> None:
    """The same plan runs afterwards, also where it follows its input and the preview did not."""
    Path("in/a.txt").write_text("one\n")
    plan = load_app(app(), ["splitter.follow=true", "splitter.existing=ignore"])
    before = dict(vars(plan.operators["splitter"].operator))
    assert values(preview(plan)) == [b"one"]
    after = vars(plan.operators["splitter"].operator)
    assert {name: after[name] for name in before if name not in plan.operators["splitter"].operator.output_ports} == {
        name: before[name] for name in before if name not in plan.operators["splitter"].operator.output_ports
    }


@pytest.mark.parametrize("block_size", [5, 1024])
@pytest.mark.parametrize(
    ("format", "name"),
    by_day(
        2,
        [
            ("{type: csv, columns: {a: int64}}", "a.csv"),
            ("{type: csv, columns: {a: int64}}", "a.csv.gz"),
            ("{type: fixed, length: 4}", "a"),
            ("lines", "a"),
        ],
    ),
)
def test_an_offset_begins_at_the_next_record(format: str, name: str, block_size: int) -> None:
    """Whatever the offset, also within quotes, the records are those of the whole file from there on."""
    content = CSV + b"." * (-len(CSV) % 4)
    Path("in", name).write_bytes(content if name == "a.csv" else gzip.compress(content, mtime=0))
    path = app(format, PASSING)
    plan = load_app(path, [f"splitter.block_size={block_size}"])
    whole = preview(plan, PreviewOptions(at="reader.messages"))
    assert whole.records
    for offset in range(1, len(content) + 2, 1 if IS_NIGHTLY else 3):
        options = PreviewOptions(at="reader.messages", file=f"in/{name}", offset=offset)
        assert preview(plan, options).records == tuple(each for each in whole.records if each.offset >= offset)


def test_a_large_file_is_read_no_further_than_needed() -> None:
    """A block is small, and what follows the sample is not passed on."""
    Path("in/a.txt").write_bytes(b"".join(b"%07d\n" % number for number in range(1 << 20)))
    found = seen(app(), records=3)
    assert values(found) == [b"0000000", b"0000001", b"0000002"]
    assert (found.is_complete, found.size_bytes <= 2 << 20) == (False, True)
    assert found.operators[1].taken is not None
    assert 1000 <= found.operators[1].taken < 3000


def test_a_tree_of_small_files_is_not_read_whole() -> None:
    """The first files come first, a few at a time."""
    for number in range(600):
        Path(f"in/{number:03}").write_text(f"{number}\n" * 10)
    found = seen(app(), records=3)
    assert (values(found), len(found.files) < 300) == ([b"0", b"0", b"0"], True)


def test_an_aggregate_shows_the_result_of_what_was_read() -> None:
    """All input where it is small; otherwise as much as may be read."""
    Path("in/a.txt").write_bytes(b"one\ntwo\none\n")
    path = app(middle="middle: {class: CountBy, properties: {by: record}}")
    found = seen(path)
    assert values(found) == [b"one", b"two"]
    assert [each.values["count"] for each in found.records] == [2, 1]
    assert (found.at_end, found.is_complete) == (2, True)
    Path("in/a.txt").write_bytes(b"one\n" * 1_000_000)
    found = seen(path, read_bytes=1 << 20)
    assert (found.is_complete, found.records[0].values["count"] < 1_000_000) == (False, True)


def test_keys_are_asked_for_as_they_are_in_a_run() -> None:
    """An exchange by a column that is not there fails."""
    Path("in/a.csv").write_bytes(b"a,b\n1,x\n")
    found = seen(app("csv", PASSING.replace("parallel", "{by: user, count: 2}")))
    assert "user" in str(found.error)


def test_refused_records_are_shown_with_those_that_are_not() -> None:
    """Whether or not the app takes them in; where it does not, a run would end."""
    Path("in/a.csv").write_bytes(b"a,b\n1,x\nnine,y\n3,z\n")
    path = app("{type: csv, columns: {a: int64}}", PASSING)
    found = seen(path)
    assert values(found) == [{"a": 1, "b": "x"}, {"a": 3, "b": "z"}]
    assert dict(found.columns) == {"a": "int64", "b": "string"}
    ((offset, raw),) = [(each.offset, each.raw) for each in found.rejects]
    assert (offset, raw, found.reject_count, found.ends_run) == (8, b"nine,y", 1, ("reader",))
    text = (
        Path(path).read_text().replace("streams:", "  rejects: {class: RecordWriter, properties: {path: x}}\nstreams:")
    )
    Path(path).write_text(f"{text}  bad: {{from: reader.errors, to: rejects.input}}\n")
    found = seen(path)
    assert (found.port, found.reject_count, found.ends_run) == ("writer.input", 1, ())
    assert json.loads(str(seen(path, at="rejects").records[0].values["record"], "utf-8"))["offset"] == 8


def test_a_writer_that_keeps_what_it_refuses_is_shown_all_the_same() -> None:
    """Its records are the app's, and those that it refuses are not."""
    Path("app.yaml").write_text("name: x\nsteps:\n- files: in\n- read: lines\n- table: delta:out\nrejects: bad\n")
    assert seen("app.yaml").port == "table.input"


def test_an_error_of_an_operator_comes_with_the_records_before_it() -> None:
    """Operator, file and offset of the record are named as in a run."""
    Path("in/a.txt").write_bytes(b"".join(b"%02d\n" % number for number in range(20)))
    found = seen(app(middle=FAILING), records=3)
    assert values(found) == [b"00", b"01", b"02"]
    assert found.error is not None
    place = f"operator 'middle': take() raised ValueError(twelve) on the record at offset 36 of {Path.cwd()}/in/a.txt"
    assert str(found.error).startswith(place)


def test_a_preview_goes_through_as_many_operators_as_a_run() -> None:
    """In a long chain operators call each other, in a preview no deeper than in a task."""
    Path("in/a.txt").write_text("one\n#two\n")
    names = ["middle", *(f"more{number}" for number in range(144))]
    operators = "\n  ".join(FILTER.replace("middle", name) for name in names)
    streams = [f"  {target}: {{from: {source}.output, to: {target}.input}}\n" for source, target in pairwise(names)]
    text = Path(app(middle=operators)).read_text().replace("from: middle.output", f"from: {names[-1]}.output")
    Path("app.yaml").write_text(text + "".join(streams))
    found = seen("app.yaml")
    assert (found.error, values(found)) == (None, [b"one"])
    assert [row["record"] for row in written()] == ["one"]


def test_columns_are_inferred_by_the_first_file_with_records() -> None:
    """Also where files without any come first."""
    for name, text in {"a": "", "b": "\n", "c": '{"n": 1}\n{"n": 2.5}\n'}.items():
        Path("in", name).write_text(text)
    path = app("{type: json_lines, columns: infer}", PASSING)
    found = seen(path, at="reader.messages")
    assert (values(found), dict(found.columns)) == ([{"n": 1.0}, {"n": 2.5}], {"n": "double"})


def test_a_time_with_nanoseconds_is_shown_as_text() -> None:
    """Python has no such time, and a run passes it on."""
    Path("in/a.csv").write_text("at\n2026-03-29T02:30:00.000000001\n")
    path = app('{type: csv, columns: {at: "timestamp[ns]"}}', PASSING)
    found = seen(path, at="reader.messages")
    assert (found.error, values(found)) == (None, [{"at": "2026-03-29T02:30:00.000000001"}])
    assert written() == values(found)


def test_a_named_file_is_read_alone() -> None:
    """It need not be among the app's own, and one that is not there is missed."""
    Path("in/a.txt").write_text("one\n")
    Path("other").write_text("two\n")
    path = app()
    assert values(seen(path, file="other")) == [b"two"]
    (error,) = [seen(path, file="none").error]
    assert isinstance(error, MissingError)
    Path("in/a.txt").unlink()
    Path("in").rmdir()
    assert values(seen(path, file="other")) == [b"two"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"at": "midle"}, "there is no operator 'midle'; did you mean 'middle'"),
        ({"at": "middle.inptu"}, "operator 'middle' has no port 'inptu'; did you mean 'input'"),
        ({"at": "splitter"}, "no records pass 'splitter'"),
        ({"at": "reader.blocks_metadata_output"}, "no records pass"),
        ({"offset": 3}, "--file says in which"),
    ],
)
def test_what_cannot_be_looked_at_is_a_mistake(options: dict[str, object], message: str) -> None:
    """Each error says what there is instead."""
    with pytest.raises(PlanError, match=message):
        seen(app(), **options)
