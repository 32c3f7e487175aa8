"""Windows that an app has planned, and another one runs, with real journals and files."""

from __future__ import annotations

import bz2
import contextlib
import csv
import io
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError, JournalError
from dagflow.journal.reader import read_state
from dagflow.journal.state import JournalState
from dagflow.plan.load import load_app
from dagflow.storage.context import StorageContext
from tests.engine.test_driver import RecordingObserver, crashing
from tests.nightly import by_day

APP = """\
name: mended
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], block_size: 20, blocks_threshold: 3, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {min_readers: 2, max_readers: 2}}
  filter: {class: RecordFilter, properties: {drop: {prefix: "#"}}, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: filter.input}
  kept: {from: filter.output, to: writer.input}
"""
SECOND = "\n  other: {class: BlockReader}\n  copy: {class: RecordWriter, properties: {path: copy}, partition: parallel}"
LINES = [b"%d-%d" % (file, line) for file in range(3) for line in range(12)]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory with an app, and three files of six blocks or so, with a comment each."""
    (tmp_path / "in").mkdir()
    for file in range(3):
        lines = [line for line in LINES if line.startswith(b"%d-" % file)]
        (tmp_path / "in" / str(file)).write_bytes(b"# comment\n" + b"\n".join(lines) + b"\n")
    with contextlib.chdir(tmp_path):
        yield tmp_path


def run_with(app: str, watcher: RecordingObserver | None = None, until: int = 1000) -> None:
    """Run an app; its windows fail from the given one on."""
    Path("app.yaml").write_text(app)
    failing = pytest.raises(DagflowError, match="lights") if until < 1000 else contextlib.nullcontext()
    with failing:
        run(load_app("app.yaml"), RunOptions(), watcher, runtime=crashing(until))


def state() -> JournalState:
    """What the journal says."""
    return read_state(StorageContext.default().objects("journal"))


def records(directory: str = "out") -> list[bytes]:
    """What is published, sorted."""
    files = [path for path in Path(directory).glob("[!.]*") if path.is_file()]
    return sorted(line for path in files for line in path.read_bytes().splitlines())


CHANGES = {
    "a property": [('drop: {prefix: "#"}', 'keep: {contains: "-"}')],
    "a filter less": [
        ('  filter: {class: RecordFilter, properties: {drop: {prefix: "#"}}, partition: parallel}\n', ""),
        ("  records: {from: reader.messages, to: filter.input}\n", ""),
        ("filter.output", "reader.messages"),
    ],
    "a filter more": [
        (
            "  writer:",
            "  strict: {class: RecordFilter, properties: {keep: {contains: '-'}}, partition: parallel}\n  writer:",
        ),
        (
            "filter.output, to: writer.input",
            "filter.output, to: strict.input}\n  strict: {from: strict.output, to: writer.input",
        ),
    ],
    "more partitions": [("min_readers: 2, max_readers: 2", "min_readers: 5, max_readers: 5")],
    "an exchange": [("path: out}, partition: parallel", "path: out}, partition: 3")],
    "files by block": [("path: out", "path: out, file_name: block")],
    "another format": [("path: out", "path: out, format: raw, max_bytes: 10")],
    "another block size": [("block_size: 20", "block_size: 7")],
    "another name": [
        ("  reader:", "  lines:"),
        ("reader.blocks", "lines.blocks"),
        ("reader.messages", "lines.messages"),
    ],
}


@pytest.mark.parametrize("change", by_day(4, CHANGES))
def test_a_mended_app_takes_what_was_planned(folder: Path, change: str) -> None:
    """Whatever was changed, nothing is lost or doubled, the change is reported, and cut files go on where they were."""
    run_with(APP, until=2)
    planned = sorted(state().planned)
    assert len(planned) > 1
    assert planned[0] == 2
    before = {path: path.read_bytes() for path in Path("out").iterdir() if path.is_file()}
    mended, watcher = APP, RecordingObserver()
    for old, new in CHANGES[change]:
        assert old in mended
        mended = mended.replace(old, new)
    run_with(mended, watcher)
    again = "was planned with the app as it was and is planned again"
    assert [notice for notice in watcher.notices if again in notice] == [f"window {n} {again}" for n in planned]
    comments = 3 if change == "a filter less" else 0
    kept = [line for line in records() if not line.startswith(b"#")]
    assert (kept, len(records()) - len(kept) <= comments) == (sorted(LINES), True)
    assert {path: path.read_bytes() for path in before} == before


def test_an_unchanged_app_runs_what_was_planned(folder: Path) -> None:
    """Its plan stays as it is in the journal."""
    run_with(APP, until=2)
    plans, watcher = state().planned, RecordingObserver()
    run_with(APP, until=2)
    assert state().planned.items() >= plans.items()
    run_with(APP, watcher)
    assert not [notice for notice in watcher.notices if "planned again" in notice]
    assert records() == sorted(LINES)


def test_a_branch_that_is_new_takes_planned_blocks_too(folder: Path) -> None:
    """It has everything but the windows that were committed without it."""
    run_with(APP, until=2)
    done = records()
    mended = APP.replace("\nstreams:", SECOND + "\nstreams:\n  copies: {from: other.messages, to: copy.input}")
    run_with(
        mended.replace(
            "to: reader.blocks_metadata_input", "to: [reader.blocks_metadata_input, other.blocks_metadata_input]"
        )
    )
    assert records() == sorted(LINES)
    copied = [line for line in records("copy") if not line.startswith(b"#")]
    assert sorted([*copied, *done]) == sorted(LINES)


def test_planned_blocks_that_no_operator_takes_are_kept(folder: Path) -> None:
    """The refusal names the operator; with it the run goes on, and nothing is missing."""
    both = APP.replace("\nstreams:", SECOND + "\nstreams:\n  copies: {from: other.messages, to: copy.input}")
    both = both.replace(
        "  reader: {", "  two: {class: FileSplitterInput, properties: {files: [more], batch_bytes: 0}}\n  reader: {"
    ).replace(
        "\n  records:", "\n  more: {from: two.blocks_metadata_output, to: other.blocks_metadata_input}\n  records:"
    )
    Path("more").mkdir()
    Path("more/x").write_bytes(b"x1\nx2\n")
    run_with(both, until=1)
    plans = state().planned
    for _ in range(2):
        with pytest.raises(
            JournalError, match=r"(?s)window 1 has tuples for 'other', .* give the app an operator 'other'"
        ):
            run_with(APP)
        assert state().planned == plans
    run_with(both)
    assert (records(), records("copy")) == (sorted(LINES), [b"x1", b"x2"])


def test_an_operator_that_works_at_the_commit_may_go(folder: Path) -> None:
    """What waited for it in a planned window is dropped with it."""
    listed = APP.replace(
        "\nstreams:",
        "\n  names: {class: MetadataWriter, properties: {path: names}}\nstreams:\n"
        "  files: {from: splitter.files_metadata_output, to: names.input}",
    )
    run_with(listed, until=2)
    run_with(APP)
    assert records() == sorted(LINES)


def start_over() -> None:
    """Leave the journal and the output behind."""
    for path in [Path("journal"), Path("out")]:
        if path.exists():
            path.rename(f"{path}-{len(list(Path().iterdir()))}")


@pytest.mark.parametrize("until", by_day(1, [1, 3]))
def test_a_reader_with_a_prescan_knows_how_planned_blocks_begin(folder: Path, until: int) -> None:
    """Blocks that were planned for lines are scanned for quotes, also those behind committed ones."""
    rows = [(n, f"text {n}\n# with a line, {'and more ' * (n % 3)}") for n in range(30)]
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([("a", "b"), *rows])
    for path in Path("in").iterdir():
        path.write_text(text.getvalue())
    as_rows = APP.replace("max_readers: 2", "max_readers: 2, format: csv").replace("filter.output", "reader.messages")
    as_rows = "".join(line for line in as_rows.splitlines(keepends=True) if "filter" not in line)
    # A header that was read as a line would be a record of the first committed window.
    run_with(as_rows.replace("format: csv", "format: lines") if until == 1 else as_rows, until=until)
    run_with(as_rows.replace("path: out", "path: out, max_bytes: 100"))
    found = [json.loads(line) for line in records()]
    assert sorted((int(row["a"]), row["b"]) for row in found) == sorted(rows * 3)


def test_blocks_of_a_cut_archive_keep_their_content(folder: Path) -> None:
    """What a compressed file's blocks were given stays theirs, also where it began in a committed window."""
    lines = [b"%d" % (n * 7919) for n in range(400)]
    for path in Path("in").iterdir():
        path.unlink()
    parts = [b"\n".join(lines[at : at + 20]) + b"\n" for at in range(0, 400, 20)]
    Path("in/x.bz2").write_bytes(b"".join(map(bz2.compress, parts)))
    app = APP.replace(
        "block_size: 20, blocks_threshold: 3", "block_size: 100, blocks_threshold: 2, cut_compressed: [.bz2]"
    )
    for until in (1, 2, 4):
        run_with(app, until=until)
        run_with(app.replace("path: out", "path: out, max_bytes: 100"))
        assert records() == sorted(lines)
        start_over()
