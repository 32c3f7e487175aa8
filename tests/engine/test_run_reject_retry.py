"""Refused records that are read again, with real journals and files."""

from __future__ import annotations

import contextlib
import gzip
import io
import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pyarrow.parquet as pq
import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows
from dagflow.errors import DagflowError, JournalError, MissingError
from dagflow.plan.load import load_app
from dagflow.report.manifest import tracked_files, window_manifest
from dagflow.report.open_rejects import RejectChoice, grouped, open_rejects, shown
from dagflow.report.reading import read_checkpoint, status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.engine.test_operator_state import until
from tests.nightly import by_day
from tests.operators.reader.formats.test_avro import record_of
from tests.operators.reader.formats.test_avro import written as avro_of
from tests.operators.splitter.changes.renames.rotations import compress_at_once
from tests.runs.row_format_cases import arrow_of

STORAGE = StorageContext.default()

APP = """\
name: sample
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], block_size: BLOCK, blocks_threshold: 3,
      batch_bytes: BATCH}}
  reader: {class: BlockReader, properties: {format: FORMAT, max_readers: 2}}
  writer: {class: RecordWriter, properties: {path: out, file_name: NAMES, format: json_lines}, partition: parallel}
  refused: {class: RecordWriter, properties: {path: refused}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
  bad: {from: reader.errors, to: refused.input}
"""


@dataclass(frozen=True)
class RetryCase:
    """Files, and the formats by which an app reads them before and after it is mended."""

    old: str
    new: str
    files: dict[str, bytes]
    block: int = 64
    batch: int = 0
    names: str = "part"


ROWS = b"id,n,note\n" + b"".join(
    b'%d,%s,"two\nlines, %d"\n' % (i, b"x" if i % 5 == 0 else b"%d" % i, i) for i in range(60)
)
OBJECTS = b"".join(b'{"id": %d, "n": %s}\n' % (i, b'"7"' if i % 3 == 0 else b"8") for i in range(80))
LATIN = b"".join(b"line %d %s\n" % (i, b"\xe9" if i % 4 == 0 else b"e") for i in range(50))


def parquet_file() -> bytes:
    """Row groups of a table, in which some numbers are words."""
    out = io.BytesIO()
    texts = ["x" if row % 5 == 0 else str(row) for row in range(60)]
    pq.write_table(pa.table({"id": range(60), "n": texts}), out, row_group_size=7)
    return out.getvalue()


WORDS = [{"id": row, "n": "x" if row % 5 == 0 else str(row)} for row in range(60)]
MEMBERS = json.dumps([{"id": row, "n": "x" if row % 5 == 0 else "2026-01-01"} for row in range(60)]).encode()


def read_anew(format: str, content: bytes, columns: str = "id: int64, n: TYPE", old: str = "int64") -> RetryCase:
    """A file that is read with a column of another type, and then with text."""
    old, new = (f"{{{format}, columns: {{{columns.replace('TYPE', kind)}}}}}" for kind in (old, "string"))
    return RetryCase(old, new, {"a": content, "b": content})


def other_cases() -> dict[str, RetryCase]:
    """Formats whose blocks begin in a state, or hold rows."""
    table, orc = pa.Table.from_pylist(WORDS), io.BytesIO()
    pyarrow.orc.write_table(table, orc, stripe_size=64)
    items = "".join(f'<o id="{row["id"]}"><n>{row["n"]}</n></o>' for row in WORDS)
    return {
        "rows of Avro": read_anew("type: avro", avro_of(record_of(id="long", n="string"), WORDS, sync_interval=40)),
        "members of a JSON array": read_anew("type: json", MEMBERS, old="date32"),
        "rows of Arrow": read_anew("type: arrow", arrow_of(table)),
        "rows of ORC": read_anew("type: orc", orc.getvalue()),
        "elements of XML": read_anew("type: xml, tag: o", f"<r>{items}</r>".encode(), '"@id": int64, n: TYPE'),
        "fields of one length": read_anew(
            "type: fixed, length: 9",
            "".join(f"{row['id']:04d}{row['n']:>4}\n" for row in WORDS).encode(),
            "id: [0, 4, int64], n: [4, 8, TYPE]",
        ),
        "paragraphs": read_anew(
            "type: paragraphs", "".join(f"id: {row['id']}\nn: {row['n']}\n\n" for row in WORDS).encode()
        ),
    }


CASES = {
    **other_cases(),
    "rows of CSV in many blocks": RetryCase(
        "{type: csv, columns: {id: int64, n: int64}}", "{type: csv, columns: {id: int64}}", {"a": ROWS, "b": ROWS}
    ),
    "rows of Parquet": RetryCase(
        "{type: parquet, columns: {id: int64, n: int64}}",
        "{type: parquet, columns: {id: int64, n: string}}",
        {"a": parquet_file(), "b": parquet_file()},
    ),
    "rows of Parquet without a column": RetryCase(
        "{type: parquet, columns: [m]}", "{type: parquet, columns: [id, n]}", {"a": parquet_file()}
    ),
    "rows of a compressed file": RetryCase(
        "{type: csv, columns: {n: int64}}", "{type: csv, columns: {}}", {"a.gz": gzip.compress(ROWS, mtime=0)}
    ),
    "a file with a bad header": RetryCase(
        "{type: csv, columns: {m: int64}}", "{type: csv, columns: {id: int64}}", {"a": ROWS}, names="block"
    ),
    "objects": RetryCase(
        "{type: json_lines, columns: {id: int64, n: int64}}",
        "{type: json_lines, columns: {id: int64, n: string}}",
        {"a": OBJECTS},
    ),
    "lines in another encoding": RetryCase(
        "{type: lines, encoding: utf-8, on_bad_bytes: reject}", "{type: lines, encoding: latin-1}", {"a": LATIN}
    ),
    "many small files": RetryCase(
        "{type: csv, columns: {n: int64}}",
        "{type: csv, columns: {}}",
        {f"{i:03}": b"n,m\n%s,%d\n" % (b"x" if i % 7 == 0 else b"5", i) for i in range(30)},
        block=1 << 20,
        batch=4096,
    ),
}
ACCEPTED_ANYHOW = {"objects"}
"""Cases whose mended app refuses what the old one has accepted, so that a run with it alone gives less."""


def write_app(case: RetryCase, format: str) -> None:
    """Write the app of a case."""
    text = APP.replace("FORMAT", format).replace("BLOCK", str(case.block)).replace("BATCH", str(case.batch))
    Path("app.yaml").write_text(text.replace("NAMES", case.names))


def rows(directory: str = "out") -> list[str]:
    """Return the published records, sorted."""
    found = Path(directory).glob("[!.]*") if Path(directory).exists() else ()
    return sorted(line for path in found for line in path.read_text().splitlines())


def replay(choice: RejectChoice | None = None) -> int:
    """Read refused records again; return how many windows that took."""
    return run(load_app("app.yaml"), RunOptions(rejects=choice or RejectChoice()), runtime=InlineRuntime).windows


def refused() -> int:
    """Return how many records are refused."""
    return sum(group.records for group in grouped(open_rejects("journal", STORAGE), RejectChoice()))


def accounted(part: str) -> int:
    """Return the bytes of one part of the byte accounting; all parts together are the bytes that were read."""
    accounting = status("journal", STORAGE).byte_accounting()
    assert accounting.pop("bytes") == sum(accounting.values())
    return accounting[part]


def comparable(lines: list[str]) -> list[str]:
    """Return records without the types of their values, which the mended app changes."""
    return sorted(json.dumps({k: str(v) for k, v in json.loads(line).items()}) for line in lines)


def refused_by_old(case: RetryCase, directory: Path) -> Iterator[RetryCase]:
    """A working directory in which the old app of a case has refused a part of what it has read."""
    (directory / "in").mkdir()
    for name, content in case.files.items():
        (directory / "in" / name).write_bytes(content)
    with contextlib.chdir(directory):
        write_app(case, case.old)
        run(load_app("app.yaml"), runtime=InlineRuntime)
        assert refused() > 0
        yield case


@pytest.fixture(params=by_day(3, CASES))
def case(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[RetryCase]:
    """Each case."""
    yield from refused_by_old(CASES[request.param], tmp_path)


def expected_after(case: RetryCase, tmp_path: Path) -> list[str]:
    """Return what both apps together accept: all records that any of them accepts, once."""
    before = comparable(rows())
    if case in (CASES[name] for name in ACCEPTED_ANYHOW):
        return sorted([*before, *(json.dumps({"id": str(i), "n": "7"}) for i in range(0, 80, 3))])
    other = tmp_path / "other"
    other.mkdir()
    (other / "in").symlink_to(tmp_path / "in")
    with contextlib.chdir(other):
        write_app(case, case.new)
        run(load_app("app.yaml"), runtime=InlineRuntime)
        return comparable(rows())


def test_records_that_are_accepted_now_come_back_once(case: RetryCase, tmp_path: Path) -> None:
    """After a replay of rejects the output is that of both apps; a second replay does nothing."""
    expected, written = expected_after(case, tmp_path), rows("refused")
    write_app(case, case.new)
    assert replay() == 1
    assert comparable(rows()) == expected
    assert (refused(), status("journal", STORAGE).rejected) == (0, 0)
    assert accounted("rejected") == 0
    assert replay() == 0
    assert comparable(rows()) == expected
    assert rows("refused") == written
    assert run(load_app("app.yaml"), runtime=InlineRuntime).windows == 0


def test_records_that_stay_refused_stay_once(case: RetryCase) -> None:
    """An app that changes elsewhere refuses the same records again: their number stays, and nothing is published."""
    before, output, origins = refused(), rows(), origins_of_rejects()
    write_app(case, case.old)
    Path("app.yaml").write_text(Path("app.yaml").read_text().replace("path: refused", "path: others"))
    assert replay() == 1
    assert (refused(), rows(), origins_of_rejects()) == (before, output, origins)
    assert status("journal", STORAGE).rejected == before
    is_of_rows = any(name in case.old for name in ("parquet", "avro", "arrow", "orc"))
    assert accounted("rejected") > 0 or is_of_rows  # a row is among the bytes of its row group
    assert replay() == 0


@pytest.fixture
def latin_lines(tmp_path: Path) -> Iterator[RetryCase]:
    """Lines; an app has refused those that are in another encoding than its own."""
    chosen = RetryCase("{type: lines, encoding: utf-8, on_bad_bytes: reject}", "", {"a": LATIN})
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_bytes(LATIN)
    with contextlib.chdir(tmp_path):
        write_app(chosen, chosen.old)
        run(load_app("app.yaml"), runtime=InlineRuntime)
        yield chosen


def is_short(record: bytes) -> bool:
    """Whether a line has a number of one digit."""
    return len(record.split()[1]) == 1


def test_the_bytes_of_what_is_no_record_any_more_are_skipped(latin_lines: RetryCase) -> None:
    """A refused record that the format now leaves out is neither refused nor published; its bytes stay counted."""
    before, skipped, rejected = len(rows()), accounted("skipped"), accounted("rejected")
    write_app(latin_lines, f"{{type: lines, encoding: latin-1, validate: {__name__}.is_short}}")
    assert replay() == 1
    assert (refused(), len(rows()) - before) == (0, 3)
    assert (accounted("rejected"), accounted("skipped") - skipped) == (0, rejected - 3 * len(b"line 0 e"))


REFINED = """\
name: refined
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in]}}
  reader: {class: BlockReader, properties: {format: {type: csv, columns: {n: TYPE}}}}
  select: {class: Select, properties: {where: 1 / (n - 300) < 9}, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out, format: json_lines}, partition: parallel}
  refused: {class: RecordWriter, properties: {path: refused}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: select.input}
  chosen: {from: select.output, to: writer.input}
  bad: {from: [reader.errors, select.errors], to: refused.input}
"""


def test_bytes_add_up_where_another_operator_refuses_what_came_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator behind the reader refuses records whose bytes the reader's accounting holds as read."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    Path("in/a").write_text("n\n1\n300\n400\nx\n")
    Path("app.yaml").write_text(REFINED.replace("TYPE", "int8"))
    run(load_app("app.yaml"), runtime=InlineRuntime)
    assert (refused(), accounted("rejected")) == (3, len("300400x"))
    Path("app.yaml").write_text(REFINED.replace("TYPE", "int64"))
    replay()
    assert (refused(), accounted("rejected"), accounted("records")) == (2, len("x"), len("1300400"))
    assert status("journal", STORAGE).rejected == 2


def origins_of_rejects() -> list[tuple[str, int, int]]:
    """Return where the refused records lie."""
    everything = shown(open_rejects("journal", STORAGE), RejectChoice(), 0)
    return sorted((each.file, each.offset, each.length) for each in everything)


def in_two_runs_as_it_grows() -> None:
    """Read a log twice; the first time a row lies across its end."""
    log, cut = Path("in/app.log"), ROWS.index(b"lines, 30")
    log.write_bytes(ROWS[:cut])
    run(load_app("app.yaml"), runtime=InlineRuntime)
    log.write_bytes(ROWS)
    run(load_app("app.yaml"), runtime=InlineRuntime)


def in_two_runs_as_it_is_rotated() -> None:
    """Read a log in part, and the rest of it when it is compressed, and put it back; a row lies across the cut."""
    log = Path("in/app.log")
    log.write_bytes(ROWS)
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), runtime=until(2))
    os.link(log, kept := Path("kept"))
    compress_at_once(log)
    for _ in range(2):
        run(load_app("app.yaml"), runtime=InlineRuntime)
    kept.rename(log)


@pytest.mark.parametrize("read", [in_two_runs_as_it_grows, in_two_runs_as_it_is_rotated])
def test_rejects_behind_the_place_where_a_log_was_read_on_come_back(
    read: Callable[[], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The state there is found in the content of the file, as when they were read first."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    case = RetryCase("{type: csv, columns: {id: int64, n: int64}}", "{type: csv, columns: {id: int64}}", {})
    write_app(case, case.old)
    Path("app.yaml").write_text(Path("app.yaml").read_text().replace("batch_bytes: 0", "unterminated: wait"))
    read()
    assert (refused(), len(rows())) == (12, 48)
    Path("app.yaml").write_text(Path("app.yaml").read_text().replace(case.old, case.new))
    assert replay() == 1
    assert (refused(), sorted(json.loads(row)["id"] for row in rows())) == (0, list(range(60)))


@pytest.fixture
def two_files(tmp_path: Path) -> Iterator[RetryCase]:
    """Two files with two kinds of mistakes, read by an app that accepts neither."""
    chosen = RetryCase(
        "{type: csv, columns: {n: int64, d: date32}}",
        "{type: csv, columns: {n: string, d: string}}",
        {name: b"n,d\n1,2024-01-01\nx,2024-01-01\n2,soon\n" for name in "ab"},
    )
    yield from refused_by_old(chosen, tmp_path)


def test_only_chosen_records_are_read_again(two_files: RetryCase) -> None:
    """A choice by reason and file takes these records; the others stay, and come back with a later replay."""
    write_app(two_files, two_files.new)
    assert replay(RejectChoice(("no whole number",), "*/a")) == 1
    assert (refused(), len(rows())) == (3, 3)
    rejected_bytes = accounted("rejected")
    assert replay(RejectChoice(("column 'd'",))) == 1
    assert (refused(), len(rows())) == (1, 5)
    assert 0 < accounted("rejected") < rejected_bytes
    assert replay() == 1
    assert (refused(), len(rows()), accounted("rejected")) == (0, 6, 0)


def test_rejects_are_shown_with_column_value_and_text(two_files: RetryCase) -> None:
    """A refused record is listed under a reason without its value, and shown with it."""
    groups = grouped(open_rejects("journal", STORAGE), RejectChoice())
    assert {(group.reason, Path(group.file).name, group.records) for group in groups} == {
        ("column 'n' (int64): … is no whole number", "a", 1),
        ("column 'n' (int64): … is no whole number", "b", 1),
        ("column 'd' (date32): … is no date as 2024-01-31", "a", 1),
        ("column 'd' (date32): … is no date as 2024-01-31", "b", 1),
    }
    first = next(shown(open_rejects("journal", STORAGE), RejectChoice(("whole number",)), 1))
    assert (Path(first.file).name, first.offset, first.length, first.raw) == ("a", 17, 12, b"x,2024-01-01")
    assert first.reason == "column 'n' (int64): 'x' is no whole number, in: x,2024-01-01"


def test_a_file_that_has_changed_keeps_its_rejects(two_files: RetryCase) -> None:
    """Records of a version that is gone stay refused, and are tried again when it is put back."""
    content = Path("in/a").read_bytes()
    stat = Path("in/a").stat()
    Path("in/a").write_bytes(b"changed")
    write_app(two_files, two_files.new)
    assert replay() == 1
    assert refused() == 2
    Path("in/a").unlink()
    assert replay() == 1
    Path("in/a").write_bytes(content)
    os.utime("in/a", ns=(stat.st_mtime_ns, stat.st_mtime_ns))
    assert replay() == 1
    assert (refused(), len(rows())) == (0, 6)


def test_a_window_whose_rejects_came_back_is_replayed_with_them(two_files: RetryCase) -> None:
    """The window that has read them again gives nothing any more, and neither is any record there twice."""
    write_app(two_files, two_files.new)
    replay()
    output = sorted(str(json.loads(row)["n"]) for row in rows())
    for window_id in (1, 2):
        changed = replay_windows(load_app("app.yaml"), RunOptions(), [window_id], runtime=InlineRuntime)
        assert [window.window_id for window in changed] == ([1, 2] if window_id == 1 else [2])
        assert (sorted(str(json.loads(row)["n"]) for row in rows()), refused()) == (output, 0)


def test_a_refused_replay_is_no_run(two_files: RetryCase) -> None:
    """What changes nothing leaves the newest run as it was: the checkpoint does not pass for failed."""
    write_app(two_files, two_files.new)
    replay()
    with pytest.raises(MissingError, match="window 9"):
        replay_windows(load_app("app.yaml"), RunOptions(), [9], runtime=InlineRuntime)
    newest = read_checkpoint("journal", STORAGE).snapshot
    assert newest is not None and newest.driver is not None
    assert (newest.driver.state, newest.driver.heartbeat.command, newest.driver.heartbeat.error) == (
        "completed",
        "replay",
        "",
    )


def test_the_manifest_names_the_windows_that_came_back(two_files: RetryCase) -> None:
    """A window of rejects names the windows that it took over, and counts no bytes of a file twice."""
    write_app(two_files, two_files.new)
    replay()
    assert window_manifest("journal", 2, STORAGE).retries == (1,)
    file = tracked_files("journal", "*/a", STORAGE)[0]
    assert (file.ranges.read_bytes, file.part.size_bytes, file.windows) == (37, 37, [1, 2])
    assert len(file.outputs) == 3


def test_a_reader_of_another_name_is_refused(two_files: RetryCase) -> None:
    """An app without the reader cannot read again what it has refused, and nothing is changed; with it they come."""
    write_app(two_files, two_files.new)
    text = Path("app.yaml").read_text().replace("reader:", "other:").replace("reader.", "other.")
    Path("app.yaml").write_text(text)
    with pytest.raises(JournalError, match="call the reader 'reader' again"):
        replay()
    assert refused() == 4
    write_app(two_files, two_files.new)
    assert (replay(), refused()) == (1, 0)


COUNTED = """\
name: counted
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], max_files_per_window: 1, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {format: {type: csv, columns: {n: TYPE}}}}
  count: {class: Aggregate, properties: {columns: {c: count(*)}}, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out, format: json_lines}, partition: parallel}
  refused: {class: RecordWriter, properties: {path: refused}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: count.input}
  counts: {from: count.output, to: writer.input}
  bad: {from: reader.errors, to: refused.input}
"""


@pytest.mark.parametrize("committed", by_day(1, [1, 2, 3]))
def test_a_replay_does_not_end_the_result_of_an_unfinished_run(
    committed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether windows are left planned, or only what they hold: the run gives one result, and the replay another."""
    monkeypatch.chdir(tmp_path)
    Path("in").mkdir()
    for name in "abc":
        Path("in", name).write_text("n\n1\nx\n2\n")
    Path("app.yaml").write_text(COUNTED.replace("TYPE", "int64"))
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), runtime=until(committed))
    Path("app.yaml").write_text(COUNTED.replace("TYPE", "string"))
    for _ in range(2):
        with pytest.raises(JournalError, match=r"result of operator 'count' is over the run, which is not finished"):
            replay()
    Path("app.yaml").write_text(COUNTED.replace("TYPE", "int64"))
    run(load_app("app.yaml"), runtime=InlineRuntime)
    Path("app.yaml").write_text(COUNTED.replace("TYPE", "string"))
    replay()
    assert ([json.loads(row)["c"] for row in rows()], refused()) == ([3, 6], 0)
