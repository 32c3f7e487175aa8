"""How much a run will read."""

from __future__ import annotations

from pathlib import Path

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_sizing import InputCount
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot, WholeInput
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from operators import FileSplitterInput

APP = """\
name: sample
attributes: {checkpoint: checkpoint}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in, blocks_threshold: 2}}
  reader: {class: BlockReader}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""
FILES = 40


class SnapshotRecorder:
    """Keeps all snapshots of a run."""

    def __init__(self) -> None:
        self.snapshots: list[RunSnapshot] = []

    def progress(self, snapshot: RunSnapshot) -> None:
        """Keep it."""
        self.snapshots.append(snapshot)

    def notice(self, text: str) -> None:
        """Ignore."""


def write(directory: Path, files: range) -> None:
    """Files of a hundred bytes."""
    directory.mkdir(exist_ok=True)
    for number in files:
        (directory / f"{number:04}").write_bytes(b"x" * 99 + b"\n")


def test_a_first_run_counts_its_input_beside_itself(tmp_path: Path) -> None:
    """What is counted is an estimate; what the run itself has listed is exact, and what it reads never exceeds it."""
    write(tmp_path, range(3))
    storage = StorageContext.default()
    counting = InputCount([FileSplitterInput(files=str(tmp_path))], storage, is_first=True, after_s=0)
    counting.whole(100, is_complete=False)
    counting.wait()
    assert counting.whole(100, is_complete=False) == WholeInput(300, is_exact=False)
    assert counting.whole(400, is_complete=False) is None
    assert counting.whole(250, is_complete=True) == WholeInput(250)


def test_a_later_run_does_not_count_what_was_read(tmp_path: Path) -> None:
    """It knows the whole once it has listed it; nor does a count of something that is not there end anything."""
    write(tmp_path, range(3))
    storage = StorageContext.default()
    for files, is_first in ((tmp_path, False), (tmp_path / "gone", True)):
        counting = InputCount([FileSplitterInput(files=str(files))], storage, is_first=is_first, after_s=0)
        for _ in range(2):
            assert counting.whole(0, is_complete=False) is None
            counting.wait()


def test_a_short_run_does_not_count_its_input(tmp_path: Path) -> None:
    """A count takes time from the process that plans the run."""
    write(tmp_path, range(3))
    counting = InputCount([FileSplitterInput(files=str(tmp_path))], StorageContext.default(), is_first=True, after_s=60)
    for _ in range(2):
        assert counting.whole(100, is_complete=False) is None
        counting.wait()


def test_the_figures_of_a_run_add_up_at_every_moment(tmp_path: Path) -> None:
    """Read bytes and records never shrink, stay below the whole, and end as the account says."""
    write(tmp_path / "in", range(FILES))
    text = APP.replace("in,", f"{tmp_path}/in,").replace("path: out", f"path: {tmp_path}/out")
    (tmp_path / "app.yaml").write_text(text)
    app = load_app(str(tmp_path / "app.yaml"))
    options = RunOptions(checkpoint=str(tmp_path / "checkpoint"))
    published = 0
    for first, new in ((0, FILES), (FILES, FILES // 2)):
        write(tmp_path / "in", range(first, first + new))
        observer = SnapshotRecorder()
        done = run(app, options, observer=observer, runtime=InlineRuntime)
        seen = observer.snapshots
        assert (done.bytes, done.records_read, done.windows) == (new * 100, new, new // 2)
        files = sum(each.files for each in done.published)
        assert files == len(list((tmp_path / "out").iterdir())) - published
        published += files
        for name in ("read_bytes", "records_read"):
            figures = [getattr(each, name) for each in seen]
            assert figures == sorted(figures)
            assert figures[-1] == getattr(done, name)
        wholes = [each.whole for each in seen if each.whole is not None]
        assert wholes[-1] == WholeInput(done.bytes)
        assert all(each.read_bytes <= each.whole.bytes for each in seen if each.whole is not None)
