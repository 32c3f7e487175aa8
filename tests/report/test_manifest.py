"""What the journal says of windows and files, of real runs over real files."""

from __future__ import annotations

import contextlib
import json
import re
import zlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagflow.api.context import Skipped
from dagflow.cli.main import command_line
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError, MissingError
from dagflow.plan.load import load_app
from dagflow.report.input_ranges import LEFT_OUT, PLANNED, READ, InputRange
from dagflow.report.manifest import (
    PublishedFile,
    TrackedFile,
    WindowManifest,
    matching_windows,
    tracked_files,
    unmatched,
    window_manifest,
)
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.cli.scaffold.test_column_types import Compared
from tests.engine.test_driver import crashing

APP = """\
name: sample
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], block_size: 8, blocks_threshold: 3, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {min_readers: 2, max_readers: 2, on_error: skip}}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory with an app and two files of 20 and 8 bytes."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.log").write_text("one\ntwo\nthree\nfour\n\n")
    (tmp_path / "in" / "b.log").write_text("seven\n8\n")
    with contextlib.chdir(tmp_path):
        yield tmp_path


def finish(folder: Path) -> None:
    """Run the app to its end."""
    run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)


def test_a_windows_manifest_says_which_bytes_became_which_file(folder: Path) -> None:
    """Ranges, versions, counts and checksums are those of the real files."""
    finish(folder)
    manifest = window_manifest("journal", 1, StorageContext.default())
    found = (folder / "in" / "a.log").stat()
    assert {(each.url, each.size_bytes, each.mtime_ns) for each in manifest.inputs} == {
        (str(folder / "in" / "a.log"), found.st_size, found.st_mtime_ns)
    }
    assert sorted((each.start, each.end) for each in manifest.inputs)[0][0] == 0
    assert sum(each.end - each.start for each in manifest.inputs) == 20
    for output in manifest.outputs:
        content = Path(output.url).read_bytes()
        assert (len(content), zlib.crc32(content), content.count(b"\n")) == (
            *(output.size_bytes, output.crc32, output.records),
        )
        # The records of a partition begin in the ranges that the manifest gives for its file.
        whole = (folder / "in" / "a.log").read_bytes()
        offsets = [whole.index(line) for line in content.splitlines() if line]
        assert all(any(s.start <= place < s.end for s in manifest.sources_of(output)) for place in offsets)
    with pytest.raises(MissingError, match="window 9 is unknown, windows 1 to 2 are known"):
        window_manifest("journal", 9, StorageContext.default())


def test_a_window_says_when_each_step_happened_and_who_worked(folder: Path) -> None:
    """Discovery, emission, plan, tasks, commit and publication follow on each other by the driver's clock."""
    finish(folder)
    manifest = window_manifest("journal", 1, StorageContext.default())
    times = manifest.times
    steps = [times["emitted_ms"], times["planned_ms"], times["started_ms"], times["finished_ms"], times["committed_ms"]]
    steps.append(times["published_ms"])
    assert steps == sorted(steps)
    assert 0 < max(each.discovered_ms for each in manifest.inputs) <= times["emitted_ms"]
    assert manifest.busy_s.keys() >= {"reader", "writer"}
    assert min(manifest.busy_s.values()) >= 0
    assert manifest.to_json()["times"]["published_ms"] == times["published_ms"]


def test_files_are_found_with_their_windows_and_outputs(folder: Path) -> None:
    """By pattern; each version of a file by itself."""
    finish(folder)
    [file] = tracked_files("journal", "in/b*", StorageContext.default())
    assert (file.part.url, file.ranges.state, file.ranges.read_bytes) == (str(folder / "in" / "b.log"), READ, 8)
    assert file.windows == [2]
    assert b"".join(Path(url).read_bytes() for url in file.outputs) == b"seven\n8\n"
    with (folder / "in" / "b.log").open("a") as log:
        log.write("9\n")
    finish(folder)
    first, second = tracked_files("journal", "in/b.log", StorageContext.default())
    assert (first.part.size_bytes, first.windows, second.part.size_bytes, second.windows) == (8, [2], 10, [3])
    assert second.ranges.read_bytes == 2
    assert tracked_files("journal", "*.txt", StorageContext.default()) == []


def test_a_pattern_finds_files_outside_of_the_working_directory(folder: Path) -> None:
    """As it is written it stands for the beginning of any location; otherwise it is relative."""
    finish(folder)
    journal, names = str(folder / "journal"), {"a.log", "b.log"}
    (folder / "beside").mkdir()
    with contextlib.chdir(folder / "beside"):
        for pattern, found in [
            ("*", names),
            ("/*", names),
            ("*/a.log", {"a.log"}),
            ("*/in/?.log", names),
            ("../in/a*", {"a.log"}),
            ("in/a*", set()),
            ("a.log", set()),
        ]:
            files = tracked_files(journal, pattern, StorageContext.default())
            assert {Path(file.part.url).name for file in files} == found
            assert len(matching_windows(journal, pattern, StorageContext.default())) == len(found)


@pytest.mark.parametrize("pattern", ["nothing.txt", "in/no*", "in/[x]*", "beside/a?b.log", "in/", "*/c.log"])
def test_a_pattern_that_is_advised_finds_a_file(folder: Path, pattern: str) -> None:
    """From any directory, and whatever signs the file has in its name."""
    for name in ("a.log", "b.log"):
        (folder / "in" / name).rename(folder / "in" / f"[{name[0]}]b.log")
    finish(folder)
    journal, storage = str(folder / "journal"), StorageContext.default()
    (folder / "beside").mkdir()
    with contextlib.chdir(folder / "beside"):
        said = unmatched(journal, pattern, storage)
        advised = re.findall("'(.*)'", said)
        assert advised
        assert tracked_files(journal, advised[0], storage)
        assert unmatched(journal, advised[0], storage) == ""


def test_a_file_that_waits_and_one_that_was_left_out_are_distinguished(folder: Path) -> None:
    """Planned is not read, and left out is neither."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), RunOptions(), runtime=crashing(2))
    assert [file.ranges.state for file in tracked_files("journal", "in/*", StorageContext.default())] == [READ, PLANNED]
    (folder / "in" / "new").write_text("changed in between\n")
    (folder / "in" / "new").rename(folder / "in" / "b.log")
    finish(folder)
    states = [
        (Path(file.part.url).name, file.part.size_bytes, file.ranges.state)
        for file in tracked_files("journal", "in/*", StorageContext.default())
    ]
    assert states == [("a.log", 20, READ), ("b.log", 8, LEFT_OUT), ("b.log", 19, READ)]
    assert tracked_files("journal", "in/b.log", StorageContext.default())[0].outputs == {}


def test_a_file_that_was_away_and_is_read_later_counts_as_read(folder: Path) -> None:
    """The window that did not find it has left it out, and the next one has not."""
    with pytest.raises(DagflowError, match="the lights went out"):
        run(load_app("app.yaml"), RunOptions(), runtime=crashing(2))
    (folder / "in" / "b.log").rename(folder / "away")
    finish(folder)
    [file] = tracked_files("journal", "in/b.log", StorageContext.default())
    assert (file.ranges.state, file.ranges.read_bytes) == (LEFT_OUT, 0)
    (folder / "away").rename(folder / "in" / "b.log")
    finish(folder)
    [file] = tracked_files("journal", "in/b.log", StorageContext.default())
    assert (file.ranges.state, file.ranges.read_bytes, file.windows) == (READ, 8, [2, 3])


def test_what_was_left_out_is_no_source_of_what_its_task_has_written(folder: Path) -> None:
    """Though it was planned beside what is."""
    (folder / "app.yaml").write_text(APP.replace("blocks_threshold: 3, batch_bytes: 0", "batch_bytes: 1000"))
    (folder / "in" / "c.gz").write_bytes(b"no archive")
    finish(folder)
    manifest = window_manifest("journal", 1, StorageContext.default())
    assert [Path(each.url).name for each in manifest.inputs] == ["a.log", "b.log", "c.gz"]
    sources = {Path(each.url).name for output in manifest.outputs for each in manifest.sources_of(output)}
    assert sources == {"a.log", "b.log"}
    assert [(Path(each.url).name, each.reason[:28]) for each in manifest.skipped] == [
        ("c.gz", "corruptarchive at offset 0: ")
    ]


def test_the_sources_of_a_file_are_found_among_many_that_were_left_out() -> None:
    """A window of small files may have left out ten thousand: each input is compared with its own ranges alone."""
    urls = [Compared(f"in/{number}") for number in range(1000)]
    inputs = tuple(InputRange(url, 10, 0, "", 0, 10, 1, "reader.in", 0) for url in urls)
    skipped = tuple(Skipped(url, 0, 10, "why") for url in urls[::2])
    output = PublishedFile("out/1", 1, 1, None, "reader", 0)
    manifest = WindowManifest(1, "committed", {}, inputs, (output,), skipped, {}, {})
    Compared.comparisons = 0
    states = []
    for part in inputs:
        file = TrackedFile(part)
        file.add(manifest, part)
        states.append(file.ranges.state)
    assert states == [LEFT_OUT, READ] * 500
    assert [*manifest.positions_of(output)] == [*range(1, 1000, 2)]
    assert Compared.comparisons < 10 * len(urls)


def test_status_prints_files_and_windows(folder: Path) -> None:
    """For people and as JSON."""
    finish(folder)

    def status(*args: str) -> str:
        done = CliRunner().invoke(command_line, ["status", "journal", *args])
        assert done.exit_code == 0, done.stderr
        return done.stdout

    text = status("--files", "in/b.log")
    assert f"{folder}/in/b.log\n    read: 8 of 8 bytes, modified 20" in text
    assert f"window 2\n    -> {folder}/out/part-00000002" in text
    nothing = "no window has read such a file: patterns are compared with whole locations"
    assert status("--files", "*.txt").startswith(f"{nothing}, such as {folder}/in/a.log, which '*/a.log' matches")
    assert "window 1, committed" in status("--window", "1")
    assert f"from {folder}/in/b.log [0, 8) of 8 bytes" in status("--window", "2")
    [file] = json.loads(status("--files", "in/b.log", "--json"))["files"]
    assert (file["state"], file["windows"]) == ("read", [2])
    window = json.loads(status("--window", "2", "--json"))
    [output] = window["outputs"]
    assert window["inputs"][output["sources"][0]]["url"] == f"{folder}/in/b.log"
    done = CliRunner().invoke(command_line, ["status", "journal", "--files", "x", "--window", "1"])
    assert (done.exit_code, "cannot be given together" in done.stderr) == (2, True)
