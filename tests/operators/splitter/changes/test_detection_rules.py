"""What becomes of files that change after they were taken: every documented outcome, on real files."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError, MissingError, SourceChangedError
from dagflow.execution.messages import Program, WindowJob
from dagflow.journal.reader import committed_windows
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.runtime.base import Runtime
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.nightly import by_day
from tests.operators.splitter.splitter_driver import FollowingDriver, write
from tests.properties.test_growing_files import append, read

STORAGE = StorageContext.default()

BEFORE = b"1\n2\n3\n"

Change = Callable[[Path], object]


def overwrite_by_rename(path: Path) -> None:
    """As careful writers do."""
    write(path.with_name("b.tmp"), b"7\n8\n9\n").rename(path)


def recreate(path: Path) -> None:
    """As careless ones do; another inode, because one is kept."""
    kept = path.with_name(".kept")
    os.link(path, kept)
    path.unlink()
    write(path, b"7\n")


CHANGES: dict[str, tuple[str, Change, list[bytes], list[bytes]]] = {
    # What is done to the file: how it is named, what a tail gives, what reading it anew gives.
    "append": ("appended", lambda path: append(path, b"4\n"), [b"4"], [b"1", b"2", b"3", b"4"]),
    "rename over it": ("replaced", overwrite_by_rename, [], [b"7", b"8", b"9"]),
    "delete and recreate": ("replaced", recreate, [], [b"7"]),
    "longer in place": ("replaced", lambda path: path.write_bytes(b"7\n8\n9\n0\n"), [], [b"7", b"8", b"9", b"0"]),
    "same length in place": ("replaced", lambda path: path.write_bytes(b"7\n8\n9\n"), [], [b"7", b"8", b"9"]),
    "touch": ("replaced", lambda path: os.utime(path), [], [b"1", b"2", b"3"]),
    "shorter in place": ("truncated", lambda path: path.write_bytes(b"7\n"), [], [b"7"]),
    "emptied": ("truncated", lambda path: path.write_bytes(b""), [], []),
}


CASES = [
    *((name, action) for name in CHANGES for action in ("reread", "ignore", "fail")),
    *((name, "tail") for name, (kind, *_) in CHANGES.items() if kind == "appended"),
]


@pytest.mark.parametrize(("name", "action"), CASES)
def test_a_change_is_named_counted_and_treated_as_the_policy_says(
    tmp_path: Path, name: str, action: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nothing is silent: each change is logged and counted once, whatever is done about it."""
    kind, change, tail, anew = CHANGES[name]
    caplog.set_level("INFO")  # of a file that has grown, and is read on
    path = write(tmp_path / "a", BEFORE, mtime_s=1000)
    with FollowingDriver(files=str(tmp_path), on_change={kind: action}) as follower:
        assert read(follower.scanned()) == [b"1", b"2", b"3"]
        follower.following.handle_source_events(1, [])
        change(path)
        if action == "fail":
            with pytest.raises(SourceChangedError, match=f"it was {kind} after it was read: 6 bytes then"):
                follower.next_scan()
        else:
            assert read(follower.next_scan()) == {"tail": tail, "reread": anew, "ignore": []}[action]
            assert follower.next_scan().files == []
            assert follower.counters[f"files_{kind}"] == 1
        logged = " +2 B" if action == "tail" else f"change={kind} action={action}"
        assert logged in caplog.text


def test_the_safe_choices_are_the_defaults(tmp_path: Path) -> None:
    """What other engines pass over in silence is read: appends by their tail, everything else as a new file."""
    for number, name in enumerate(CHANGES):
        write(tmp_path / str(number) / "a", BEFORE, mtime_s=1000)
        with FollowingDriver(files=str(tmp_path / str(number))) as follower:
            follower.scanned()
            kind, change, tail, anew = CHANGES[name]
            change(tmp_path / str(number) / "a")
            assert read(follower.next_scan()) == (tail if kind == "appended" else anew), name


def test_a_file_that_is_far_older_than_the_newest_is_read(tmp_path: Path) -> None:
    """Age is no reason to leave a file out."""
    write(tmp_path / "new", b"new\n", mtime_s=2_000_000_000)
    with FollowingDriver(files=str(tmp_path)) as follower:
        follower.scanned()
        write(tmp_path / "old", b"old\n", mtime_s=2_000_000_000 - 8 * 24 * 3600)
        assert read(follower.next_scan()) == [b"old"]


def test_bytes_that_are_no_text_come_through_as_they_are(tmp_path: Path) -> None:
    """No U+FFFD takes their place."""
    write(tmp_path / "a", b"good\n\xff\xfe bad \x80\n")
    with FollowingDriver(files=str(tmp_path)) as follower:
        assert read(follower.scanned()) == [b"good", b"\xff\xfe bad \x80"]


APP = """\
name: sample
attributes: {{checkpoint: {folder}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: ["{folder}/in"], batch_bytes: {batch}{more}}}}}
  reader: {{class: BlockReader, properties: {{on_vanished: {on_vanished}}}}}
  writer: {{class: RecordWriter, properties: {{path: "{folder}/out"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""


def app_over(folder: Path, on_vanished: str, batch: str, more: str = "") -> LogicalPlan:
    """An app over two files."""
    write(folder / "app.yaml", APP.format(folder=folder, on_vanished=on_vanished, batch=batch, more=more))
    write(folder / "in" / "a", b"1\n")
    write(folder / "in" / "b", b"2\n")
    return load_app(str(folder / "app.yaml"))


def meanwhile(act: Change, path: Path) -> Callable[[Program], Runtime]:
    """A runtime before whose first window something happens to a file, after it was planned."""

    def before(window: WindowJob) -> None:
        if window.window_id == 1:
            act(path)

    return lambda program: InlineRuntime(program, before=before)


MEANWHILE: list[tuple[Change, type[DagflowError], str]] = [
    (lambda path: path.unlink(), MissingError, "deleted"),
    (overwrite_by_rename, SourceChangedError, "superseded"),
]


@pytest.mark.parametrize("existing", ["process", "ignore"])
def test_an_ignored_change_is_reported_once_and_remembered(tmp_path: Path, existing: str) -> None:
    """What is appended to the new version is its tail; beside the old one it would be another change, and ignored."""
    app = app_over(tmp_path, "fail", "16MiB", f", existing: {existing}, on_change: {{replaced: ignore}}")
    path = tmp_path / "in" / "b"
    run(app, RunOptions(), runtime=InlineRuntime)
    overwrite_by_rename(path)
    summaries = [run(app, RunOptions(), runtime=InlineRuntime) for _ in range(2)]
    assert [summary.counts.get("splitter:files_replaced", 0) for summary in summaries] == [1, 0]
    append(path, b"3\n")
    run(app, RunOptions(), runtime=InlineRuntime)
    published = b"".join(file.read_bytes() for file in (tmp_path / "out").iterdir())
    assert sorted(published.split()) == [b"1", b"2", b"3"]


@pytest.mark.parametrize("batch", ["0", "16MiB"], ids=["alone", "in a batch"])
def test_what_grew_out_of_a_version_that_was_left_out_is_read_whole(tmp_path: Path, batch: str) -> None:
    """Nothing was read of it, so there is nothing that a tail could go on from."""
    app = app_over(tmp_path, "skip", batch)
    path, away = tmp_path / "in" / "b", tmp_path / "away"
    run(app, RunOptions(), runtime=meanwhile(lambda path: path.rename(away), path))
    away.rename(path)
    append(path, b"3\n")
    again = run(app, RunOptions(), runtime=InlineRuntime)
    assert again.counts["splitter:files_appended"] == 1
    append(path, b"3\n")
    append(tmp_path / "in" / "a", b"3\n")
    run(app, RunOptions(), runtime=InlineRuntime)
    published = b"".join(file.read_bytes() for file in (tmp_path / "out").iterdir())
    assert sorted(published.split()) == [b"1", b"2", b"3", b"3", b"3"]


@pytest.mark.parametrize(
    ("batch", "more"),
    by_day(
        4,
        [
            ("0", ""),
            ("0", ", block_size: 4"),
            ("0", ", block_size: 4, blocks_threshold: 1"),
            ("0", ", on_change: {replaced: ignore}"),
            ("0", ", on_change: {replaced: fail}"),
            ("0", ", unterminated: wait"),
            ("0", ", block_size: 4, unterminated: wait"),
            ("16MiB", ", unterminated: wait"),
        ],
    ),
    ids=by_day(
        4,
        [
            "one block",
            "blocks",
            "blocks of several windows",
            "others are ignored",
            "others are refused",
            "grows",
            "grows in blocks",
            "grows in a batch",
        ],
    ),
)
def test_what_grew_while_it_was_away_is_read_whole(tmp_path: Path, batch: str, more: str) -> None:
    """However many blocks it was planned as, and whether or not the splitter knew by then how it begins and ends."""
    app = app_over(tmp_path, "skip", batch, more)
    path, away = tmp_path / "in" / "b", tmp_path / "away"
    path.write_bytes(b"21\n22\n23\n")
    run(app, RunOptions(), runtime=meanwhile(lambda path: path.rename(away), path))
    away.rename(path)
    append(path, b"24\n")
    assert run(app, RunOptions(), runtime=InlineRuntime).counts["splitter:files_appended"] == 1
    append(path, b"25\n")
    assert run(app, RunOptions(), runtime=InlineRuntime).counts["splitter:files_appended"] == 1
    published = b"".join(file.read_bytes() for file in (tmp_path / "out").iterdir())
    assert sorted(published.split()) == [b"1", b"21", b"22", b"23", b"24", b"25"]


@pytest.mark.parametrize(
    "more",
    ["", ", block_size: 4", ", block_size: 4, blocks_threshold: 1", ", unterminated: wait"],
    ids=["one block", "blocks", "blocks of several windows", "grows"],
)
def test_the_tail_after_one_that_was_left_out_begins_where_that_did(tmp_path: Path, more: str) -> None:
    """What was read before is not read again, and what was left out is read after all."""
    app = app_over(tmp_path, "skip", "0", more)
    path, away = tmp_path / "in" / "b", tmp_path / "away"
    run(app, RunOptions(), runtime=InlineRuntime)
    append(path, b"21\n22\n23\n")

    def take_away(window: WindowJob) -> None:
        if path.exists():
            path.rename(away)

    run(app, RunOptions(), runtime=lambda program: InlineRuntime(program, before=take_away))
    away.rename(path)
    for record in (b"24\n", b"25\n"):
        append(path, record)
        assert run(app, RunOptions(), runtime=InlineRuntime).counts["splitter:files_appended"] == 1
    published = b"".join(file.read_bytes() for file in (tmp_path / "out").iterdir())
    assert sorted(published.split()) == [b"1", b"2", b"21", b"22", b"23", b"24", b"25"]


@pytest.mark.parametrize("batch", ["0", "16MiB"], ids=["alone", "in a batch"])
@pytest.mark.parametrize(("act", "error", "reason"), MEANWHILE, ids=["vanished", "changed"])
def test_a_file_that_changes_between_plan_and_read_is_noticed(
    tmp_path: Path, act: Change, error: type[DagflowError], reason: str, batch: str
) -> None:
    """It ends the run, and nothing of its window is published; or it is left out, which the journal records."""
    app = app_over(tmp_path / "fail", "fail", batch)
    path = tmp_path / "fail" / "in" / "b"
    with pytest.raises(error, match=r"in/b"):
        run(app, RunOptions(), runtime=meanwhile(act, path))
    assert not list((tmp_path / "fail" / "out").glob("*"))
    app = app_over(tmp_path / "skip", "skip", batch)
    path = tmp_path / "skip" / "in" / "b"
    summary = run(app, RunOptions(), runtime=meanwhile(act, path))
    assert [file.read_bytes() for file in (tmp_path / "skip" / "out").iterdir()] == [b"1\n"]
    assert summary.counts["reader:vanished"] == 1
    [window] = committed_windows(STORAGE.objects(str(tmp_path / "skip" / "journal")))
    assert window.intent is not None
    [skipped] = window.intent.skipped
    assert (skipped.url, skipped.start, skipped.end) == (str(path), 0, 2)
    assert (skipped.cause, skipped.size_bytes) == (reason, 2)
    assert (summary.left_out.ranges, summary.left_out.bytes, summary.left_out.newest) == (1, 2, [skipped])
