"""Source files that are removed or archived once they are merged."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError, OperatorError, StorageError
from dagflow.execution.messages import Program, WindowJob
from dagflow.journal.reader import committed_windows
from dagflow.metrics.names import CLEANED, CLEANED_NOT
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.testing.operators import OperatorHarness
from operators import BlockReader, FileSplitterInput, SourceCleaner
from tests.nightly import by_day
from tests.operators.reader.test_small_file_batch_reader import written
from tests.operators.sink.test_merger import app_in, source_files_of
from tests.operators.splitter.splitter_driver import FollowingDriver, InProcessServices, SplitterDriver, write

STORAGE = StorageContext.default()

SPLITTER = "blocks_threshold: 3, block_size: 8, batch_bytes: 64"
REMOVE = "action: remove"


def tree(root: Path) -> dict[str, bytes]:
    """Ten files; some are larger than a block."""
    contents = [bytes([48 + number]) * (number * 3) for number in range(10)]
    (root / "in").mkdir()
    written(root / "in", contents)
    return {f"{number:03}": content for number, content in enumerate(contents)}


def left(root: Path) -> dict[str, bytes]:
    """The source files that are still there."""
    return {path.name: path.read_bytes() for path in (root / "in").iterdir()}


def failing(window_id: int) -> Any:
    """A runtime that fails in one window."""

    def before(window: WindowJob) -> None:
        if window.window_id == window_id:
            raise DagflowError("the lights went out")

    return lambda program: InlineRuntime(program, before=before)


def test_source_files_go_when_they_are_published(tmp_path: Path) -> None:
    """At the end all is merged and nothing is left; a further run finds nothing to do."""
    contents = tree(tmp_path)
    run(app_in(tmp_path, splitter=SPLITTER, cleaner=REMOVE), runtime=InlineRuntime)
    assert (source_files_of(tmp_path), left(tmp_path)) == (contents, {})
    assert run(app_in(tmp_path, splitter=SPLITTER, cleaner=REMOVE), runtime=InlineRuntime).windows == 0


def test_what_was_published_is_not_removed_when_it_is_the_only_copy(tmp_path: Path) -> None:
    """With --fresh, whether the app has the cleaner or had one; without a journal there is nothing to lose."""
    contents = tree(tmp_path)
    run(app_in(tmp_path, splitter=SPLITTER, cleaner=REMOVE), RunOptions(fresh=True), runtime=InlineRuntime)
    for cleaner in (REMOVE, ""):
        with pytest.raises(DagflowError, match="'cleaner' has removed the source files"):
            run(app_in(tmp_path, splitter=SPLITTER, cleaner=cleaner), RunOptions(fresh=True), runtime=InlineRuntime)
        assert source_files_of(tmp_path) == contents


@pytest.mark.parametrize("window_id", by_day(3, range(1, 9)))
def test_no_source_file_goes_before_it_is_published(window_id: int, tmp_path: Path) -> None:
    """Wherever a run dies, every source file is there or merged; the next run finishes, each exactly once."""
    contents = tree(tmp_path)
    try:
        run(app_in(tmp_path, splitter=SPLITTER, cleaner=REMOVE), runtime=failing(window_id))
    except DagflowError:
        kept = left(tmp_path)
        assert {**source_files_of(tmp_path), **kept} == contents
        assert kept
    run(app_in(tmp_path, splitter=SPLITTER, cleaner=REMOVE), runtime=InlineRuntime)
    assert (source_files_of(tmp_path), left(tmp_path)) == (contents, {})


def test_a_source_file_that_changed_meanwhile_stays(tmp_path: Path) -> None:
    """What was merged is another version than what lies there now."""
    contents = tree(tmp_path)

    class Touching(InlineRuntime):
        def _run(self, window: WindowJob) -> Any:
            results = super()._run(window)
            (tmp_path / "in" / "001").write_bytes(b"new content")
            return results

    def runtime(program: Program) -> InlineRuntime:
        return Touching(program)

    run(app_in(tmp_path, splitter="block_size: 64MiB", cleaner=REMOVE), runtime=runtime)
    assert source_files_of(tmp_path) == contents
    assert left(tmp_path) == {"001": b"new content"}


def test_a_source_file_that_was_left_out_stays(tmp_path: Path) -> None:
    """With on_error: skip the reader's report does not name it."""
    contents = tree(tmp_path)

    def runtime(program: Program) -> InlineRuntime:
        os.utime(tmp_path / "in" / "002", ns=(7, 7))
        return InlineRuntime(program)

    run(app_in(tmp_path, splitter="block_size: 64MiB", cleaner=REMOVE), runtime=runtime)
    assert left(tmp_path) == {"002": contents.pop("002")}
    assert source_files_of(tmp_path) == contents


def test_archived_files_keep_their_paths(tmp_path: Path) -> None:
    """Moved below the archive, with their directories."""
    contents = tree(tmp_path)
    (tmp_path / "in" / "sub").mkdir()
    (tmp_path / "in" / "sub" / "x").write_bytes(b"x")
    cleaner = f"action: archive, archive: {tmp_path}/old, below: {tmp_path}/in"
    run(app_in(tmp_path, cleaner=cleaner), runtime=InlineRuntime)
    archive = tmp_path / "old"
    found = {p.relative_to(archive).as_posix(): p.read_bytes() for p in archive.rglob("*") if p.is_file()}
    assert found == {**contents, "sub/x": b"x"}


@pytest.mark.parametrize("batch_bytes", [0, 1000])
@pytest.mark.parametrize("on_long", ["skip", "reject"])
def test_a_file_that_was_too_long_to_be_merged_stays(on_long: str, batch_bytes: int, tmp_path: Path) -> None:
    """It was read, and is in no output; the reject has the first bytes of nothing."""
    contents = tree(tmp_path)
    app_in(tmp_path, splitter=f"batch_bytes: {batch_bytes}", cleaner=REMOVE)
    text = (tmp_path / "merge.yaml").read_text()
    text = text.replace("format: whole_file", f"format: {{type: whole_file, max_record: 20, on_long: {on_long}}}")
    if on_long == "reject":
        text = text.replace(
            "\nstreams:", f"\n  refused: {{class: RecordWriter, properties: {{path: {tmp_path}/bad}}}}\nstreams:"
        )
        text += "  errors: {from: reader.errors, to: refused.input}\n"
    (tmp_path / "merge.yaml").write_text(text)
    run(load_app(str(tmp_path / "merge.yaml")), runtime=InlineRuntime)
    long = {name: content for name, content in contents.items() if len(content) > 20}
    assert left(tmp_path) == long
    assert source_files_of(tmp_path) == {name: content for name, content in contents.items() if name not in long}
    assert len(long) == 3


@pytest.mark.parametrize("action", ["remove", "archive"])
def test_of_a_symbolic_link_only_the_link_goes(action: str, tmp_path: Path) -> None:
    """The file stays where it is, and an archived link leads to it, however it told of it before."""
    write(tmp_path / "store" / "a", "1\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "relative").symlink_to("../store/a")
    (tmp_path / "in" / "absolute").symlink_to(tmp_path / "store" / "a")
    cleaner = f"action: {action}" + (
        f", archive: {tmp_path}/old/er, below: {tmp_path}/in" if action == "archive" else ""
    )
    run(app_in(tmp_path, cleaner=cleaner), runtime=InlineRuntime)
    assert (left(tmp_path), (tmp_path / "store" / "a").read_bytes()) == ({}, b"1\n")
    archived = {path.name: path.read_bytes() for path in (tmp_path / "old" / "er").glob("*") if path.is_symlink()}
    assert archived == ({"relative": b"1\n", "absolute": b"1\n"} if action == "archive" else {})


def test_an_archive_in_the_input_is_refused(tmp_path: Path) -> None:
    """Otherwise what was archived would be merged again."""
    tree(tmp_path)
    cleaner = f"action: archive, archive: {tmp_path}/in/old, below: {tmp_path}/in"
    run(app_in(tmp_path, cleaner=cleaner), runtime=InlineRuntime)
    with pytest.raises(StorageError, match="read as input"):
        run(app_in(tmp_path, cleaner=cleaner), runtime=InlineRuntime)


def test_an_archive_needs_a_place() -> None:
    """The two properties belong together."""
    with pytest.raises(ValueError, match="give archive"):
        SourceCleaner(action="archive")
    with pytest.raises(ValueError, match="give archive"):
        SourceCleaner(action="remove", archive="/old")
    with pytest.raises(ValueError, match="only files of a local disk can be archived"):
        SourceCleaner(action="archive", archive="s3://bucket/old")


@pytest.mark.parametrize("archive", ["old", "old/er"])
def test_an_archive_that_cannot_be_written_to_is_refused_at_once(tmp_path: Path, archive: str) -> None:
    """Here a file is in its way; nothing is published, and every source file is where it was."""
    contents = tree(tmp_path)
    (tmp_path / "old").write_bytes(b"in the way")
    cleaner = f"action: archive, archive: {tmp_path}/{archive}"
    with pytest.raises(StorageError, match="cannot write into the archive: Not a directory") as caught:
        run(app_in(tmp_path, splitter=SPLITTER, cleaner=cleaner), runtime=InlineRuntime)
    assert caught.value.url == f"{tmp_path}/{archive}"
    assert not (tmp_path / "out").exists()
    assert left(tmp_path) == contents


def reports_of(blocks: list[Any]) -> list[Any]:
    """What a reader of lines says of blocks and batches that it has read."""
    reader, reports = BlockReader(), list[Any]()
    reader.blocks_metadata_output.connect(reports.append)
    reader.messages.connect(lambda batch: None)
    for block in blocks:
        for _ in reader.read(block) or ():
            pass
    return reports


@pytest.mark.parametrize("batch_bytes", [0, 1 << 20])
def test_a_source_file_with_a_record_in_progress_stays(batch_bytes: int, tmp_path: Path) -> None:
    """What waits for its delimiter is published nowhere; the files beside it, which wait for nothing, go."""
    for name, content in {"a": "1\ntw", "b": "3\n", "c": "4", "d": "5\n"}.items():
        write(tmp_path / "in" / name, content)
    cleaner = SourceCleaner(action="remove")
    harness = OperatorHarness(cleaner)
    with FollowingDriver(files=str(tmp_path / "in"), batch_bytes=batch_bytes) as follower:
        harness.window({"input": reports_of(follower.scanned().blocks)})
    cleaner.committed(1)
    assert left(tmp_path) == {"a": b"1\ntw", "c": b"4"}
    assert harness.counters == {CLEANED: 2, CLEANED_NOT: 2}


class Cleaning:
    """A followed directory with one file, whose versions are read and cleaned up, window by window."""

    def __init__(self, root: Path, **properties: Any) -> None:
        self.path = write(root / "in" / "a", "1\n", mtime_s=1_000_000_000)
        self.cleaner = SourceCleaner(action="remove")
        self._harness = OperatorHarness(self.cleaner)
        self._properties = {"files": str(root / "in"), **properties}

    def __enter__(self) -> Cleaning:
        self._follower = FollowingDriver(**self._properties)
        self.reports = reports_of(self._follower.scanned().blocks)
        return self

    def __exit__(self, *exception: object) -> None:
        self._follower.__exit__(*exception)

    def append(self, content: str) -> list[Any]:
        """What a reader says of the blocks of what is appended."""
        with self.path.open("a") as file:
            file.write(content)
        return self.scan()

    def scan(self) -> list[Any]:
        """What a reader says of the blocks of what a scan finds."""
        return reports_of(self._follower.next_scan().blocks)

    def take(self, reports: list[Any]) -> None:
        """One window, not known to be published."""
        self._harness.window({"input": reports})

    def restart(self) -> None:
        """Die after the commit of a window, and go on in another run."""
        self.cleaner = SourceCleaner(action="remove")
        self._harness = self._harness.restart(self.cleaner)

    @property
    def counters(self) -> dict[str, int]:
        """What the cleaner has counted since it started."""
        return dict(self._harness.counters)

    @property
    def remembered(self) -> int:
        """Of how many files and windows the cleaner keeps something."""
        state = self.cleaner.snapshot()
        return len(state.reports) + len(state.read_bytes)


@pytest.mark.parametrize("is_renamed", [True, False])
def test_a_source_file_that_is_gone_is_not_counted_as_cleaned(is_renamed: bool, tmp_path: Path) -> None:
    """What was read of it is remembered only where it is there still, under another name."""
    with Cleaning(tmp_path) as cleaning:
        cleaning.take(cleaning.reports)
        if is_renamed:
            cleaning.path.rename(tmp_path / "in" / "b")
        else:
            cleaning.path.unlink()
        cleaning.cleaner.committed(1)
    assert (cleaning.counters, cleaning.remembered) == ({CLEANED_NOT: 1}, int(is_renamed))


@pytest.mark.parametrize("is_new", [True, False])
def test_what_an_earlier_run_has_removed_is_counted_after_it(
    is_new: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run repeats what was begun; a new file that has come in place of one is no reason for a warning."""
    with Cleaning(tmp_path) as cleaning:
        cleaning.take(cleaning.reports)
        cleaning.path.unlink()
        if is_new:
            write(cleaning.path, "new\n")
        cleaning.restart()
        cleaning.cleaner.committed(1)
    assert cleaning.counters == ({} if is_new else {CLEANED: 1})
    assert left(tmp_path) == ({"a": b"new\n"} if is_new else {})
    assert caplog.messages == []


def test_a_source_file_that_has_grown_goes_after_a_restart(tmp_path: Path) -> None:
    """The repetition leaves it, and what is appended completes it."""
    with Cleaning(tmp_path) as cleaning:
        cleaning.take(cleaning.reports)
        reports = cleaning.append("2\n")
        cleaning.restart()
        cleaning.cleaner.committed(1)
        cleaning.take(reports)
        cleaning.cleaner.committed(2)
    assert (cleaning.counters, left(tmp_path), cleaning.remembered) == ({CLEANED: 1}, {}, 0)


@pytest.mark.parametrize("action", ["remove", "archive"])
def test_source_files_with_several_hard_links_are_all_read_and_stay(action: str, tmp_path: Path) -> None:
    """If one went, a later look at the other would take it for the first, which has got a new name."""
    write(tmp_path / "in" / "a", "1\n")
    for name in ("b", "c"):
        (tmp_path / "in" / name).hardlink_to(tmp_path / "in" / "a")
    write(tmp_path / "in" / "d", "4\n")
    cleaner = f"action: {action}" + (f", archive: {tmp_path}/old, below: {tmp_path}/in" if action == "archive" else "")
    app = app_in(tmp_path, splitter="max_files_per_window: 1", cleaner=cleaner)
    summary = run(app, runtime=InlineRuntime)
    assert source_files_of(tmp_path) == {"a": b"1\n", "b": b"1\n", "c": b"1\n", "d": b"4\n"}
    assert (sorted(left(tmp_path)), summary.counts["cleaner:not_cleaned"]) == (["a", "b", "c"], 3)


@pytest.mark.parametrize("batch_bytes", [0, 1 << 20])
@pytest.mark.parametrize("appended", ["2\n", "2\n3\n4\n5\n", "2"])
def test_a_source_file_goes_when_what_was_appended_to_it_is_published(
    appended: str, batch_bytes: int, tmp_path: Path
) -> None:
    """It stays when its first version is published, and then nothing of it is remembered."""
    with Cleaning(tmp_path, batch_bytes=batch_bytes, block_size=4) as cleaning:
        cleaning.take(cleaning.reports)
        reports = cleaning.append(appended)
        cleaning.cleaner.committed(1)
        cleaning.take(reports)
        cleaning.cleaner.committed(2)
        assert cleaning.path.exists() == (appended == "2")
        if appended == "2":
            cleaning.take(cleaning.append("\n"))
            cleaning.cleaner.committed(3)
    assert (left(tmp_path), cleaning.remembered) == ({}, 0)


@pytest.mark.parametrize("is_one_window", [True, False])
def test_versions_of_a_source_file_may_be_published_at_once(is_one_window: bool, tmp_path: Path) -> None:
    """Also where parallel readers report the blocks in another order than that of the file."""
    with Cleaning(tmp_path, batch_bytes=0, block_size=4) as cleaning:
        reports = cleaning.append("2\n3\n4\n")[::-1]
        for window in [reports + cleaning.reports] if is_one_window else [cleaning.reports, reports]:
            cleaning.take(window)
        cleaning.cleaner.committed(2)
    assert (left(tmp_path), cleaning.remembered) == ({}, 0)


def test_a_source_file_that_two_splitters_find_stays_until_it_is_read(tmp_path: Path) -> None:
    """What both have emitted of it adds up to its size when half of it is unread."""
    path = write(tmp_path / "in" / "a", "one\ntwo\nsix\nten\n")
    cleaner = SourceCleaner(action="remove")
    harness = OperatorHarness(cleaner)
    blocks = []
    for at in (0, 1):
        splitter = FileSplitterInput(files=str(path), block_size=4, batch_bytes=0)
        blocks.append(reports_of(SplitterDriver(splitter, InProcessServices(operator_index=at)).everything().blocks))
    for at in range(4):
        assert path.exists()
        harness.window({"input": [each[at] for each in blocks]})
        cleaner.committed(at + 1)
    assert not path.exists()


@pytest.mark.parametrize("is_new_name_free", [True, False])
def test_a_source_file_goes_when_its_end_is_read_under_another_name(is_new_name_free: bool, tmp_path: Path) -> None:
    """What was there before was read under the old one, under which there is another file by now."""
    if not is_new_name_free:
        write(tmp_path / "in" / "a.1", "waits", mtime_s=1_000_000_000)
    with Cleaning(tmp_path, batch_bytes=0, block_size=4) as cleaning:
        cleaning.take(cleaning.reports + cleaning.append("2\n34"))
        cleaning.cleaner.committed(1)
        for name in () if is_new_name_free else ("a.1",):
            (tmp_path / "in" / name).rename(tmp_path / "in" / "a.2")
        cleaning.path.rename(tmp_path / "in" / "a.1")
        write(cleaning.path, "new\nw")
        with (tmp_path / "in" / "a.1").open("a") as file:
            file.write("5\n")
        cleaning.restart()
        cleaning.take(cleaning.scan())
        cleaning.cleaner.committed(2)
    assert sorted(left(tmp_path)) == ["a", *([] if is_new_name_free else ["a.2"])]


@pytest.mark.parametrize("is_ignored", [True, False])
def test_a_source_file_stays_whose_beginning_was_left_out(is_ignored: bool, tmp_path: Path) -> None:
    """What was appended to it is read, but what was there before is published nowhere."""
    with Cleaning(tmp_path, batch_bytes=0, existing="ignore" if is_ignored else "process") as cleaning:
        for content in ("2\n", "3\n"):
            reports = cleaning.append(content)
            assert len(reports) == 1
            cleaning.take(reports)
        cleaning.cleaner.committed(2)
    assert (left(tmp_path), cleaning.remembered) == ({"a": b"1\n2\n3\n"}, 0)
    assert cleaning.counters == {CLEANED_NOT: 2}


def test_what_is_left_out_is_in_the_journal(tmp_path: Path) -> None:
    """The window's entry names the file, its range and the reason; the run's counts say how many there were."""
    tree(tmp_path)

    def runtime(program: Program) -> InlineRuntime:
        (tmp_path / "in" / "002").unlink()
        return InlineRuntime(program)

    summary = run(app_in(tmp_path, splitter="block_size: 64MiB"), runtime=runtime)
    assert summary.counts["reader:vanished"] == 1
    windows = committed_windows(STORAGE.objects(str(tmp_path / "journal")))
    [skipped] = [each for window in windows if window.intent is not None for each in window.intent.skipped]
    assert (skipped.url, skipped.start, skipped.end) == (str(tmp_path / "in" / "002"), 0, 6)
    assert "No such file" in skipped.reason


TWICE = """\
name: twice
attributes: {{checkpoint: {root}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {root}/in, {rules}}}}}
  first: {{class: BlockReader}}
  second: {{class: BlockReader}}
  writer: {{class: RecordWriter, properties: {{path: {root}/out}}}}
  cleaner: {{class: SourceCleaner, properties: {{action: remove}}}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: [first.blocks_metadata_input, second.blocks_metadata_input]}}
  records: {{from: [first.messages, second.messages], to: writer.input}}
  read: {{from: [first.blocks_metadata_output, second.blocks_metadata_output], to: cleaner.input}}
"""


@pytest.mark.parametrize("rules", ["block_size: 4, batch_bytes: 0, blocks_threshold: 1", "batch_files: 2"])
def test_source_files_that_two_readers_read_stay(rules: str, tmp_path: Path) -> None:
    """What both have read of a file adds up to its size when half of it is unread."""
    for name in "abc":
        write(tmp_path / "in" / name, b"one\ntwo\nsix\nten\n")
    (tmp_path / "app.yaml").write_text(TWICE.format(root=tmp_path, rules=rules))
    with pytest.raises(OperatorError, match=r"operator 'cleaner'.*two readers report the same files"):
        run(load_app(tmp_path / "app.yaml"), runtime=InlineRuntime)
    assert sorted(left(tmp_path)) == ["a", "b", "c"]
