"""Windows that are committed and cannot be published, with real journals and files."""

from __future__ import annotations

import contextlib
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from dagflow.cli.main import command_line
from dagflow.engine import operator_state
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_repair import repair
from dagflow.errors import DagflowError, JournalError, LostOutputError, MissingError, StorageError
from dagflow.journal.reader import read_state
from dagflow.journal.state import JournalState
from dagflow.plan.load import load_app
from dagflow.report.manifest import manifests
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.backends.local import LocalPendingFiles
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import Durability, PendingFile
from tests.engine.test_driver import RecordingObserver, crashing
from tests.nightly import by_day

STORAGE = StorageContext.default()
APP = """\
name: repaired
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], blocks_threshold: 2, batch_bytes: 0}}
  reader: {class: BlockReader, properties: {min_readers: 2, max_readers: 2}}
  writer: {class: RecordWriter, properties: {path: out, file_name: block}, partition: parallel}
  unique: {class: Deduplicator, partition: 1}
  once: {class: RecordWriter, properties: {path: once}, partition: parallel}
  names: {class: MetadataWriter, properties: {path: names}}
streams:
  files: {from: splitter.files_metadata_output, to: names.input}
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: [writer.input, unique.input]}
  first: {from: unique.output, to: once.input}
"""
TEXTS = {name: f"{name}1\n{name}2\nsame\n" for name in "abcdef"}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A working directory with an app, which has state, and six files for three windows."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "in").mkdir()
    for name, text in TEXTS.items():
        (tmp_path / "in" / name).write_text(text)
    # Every window then writes its state to an object of its own, which a repair goes back to.
    monkeypatch.setattr(operator_state, "INLINE_BYTES", 0)
    with contextlib.chdir(tmp_path):
        yield tmp_path


def work(observer: RecordingObserver | None = None) -> int:
    """Run the app; return the number of windows."""
    return run(load_app("app.yaml"), RunOptions(), observer, runtime=InlineRuntime).windows


def die_publishing(monkeypatch: pytest.MonkeyPatch, files: int) -> None:
    """Run the app until it dies in a window's publication, after so many files of all windows."""
    publish = LocalPendingFiles.publish
    published: list[PendingFile] = []

    def some(self: LocalPendingFiles, pending: PendingFile, durability: Durability = "process") -> None:
        if len(published) == files:
            raise KeyboardInterrupt("died")
        published.append(pending)
        publish(self, pending, durability)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt, match="died"):
        patch.setattr(LocalPendingFiles, "publish", some)
        work()


def state() -> JournalState:
    """What the journal says."""
    return read_state(STORAGE.objects("journal"))


def visible(directory: str) -> list[str]:
    """The records of the visible files, sorted."""
    files = [path for path in Path(directory).glob("[!.]*") if path.is_file()]
    return sorted(line for path in files for line in path.read_text().splitlines())


def require_all(extra: str = "") -> None:
    """Require every record once in the blocks' files, each text once in the others, and an account that agrees."""
    assert visible("out") == sorted(line + extra for text in TEXTS.values() for line in text.splitlines())
    assert visible("once") == sorted({line + extra for text in TEXTS.values() for line in text.splitlines()})
    assert len(visible("names")) == len(TEXTS)
    recorded = {each.url for one in manifests("journal", STORAGE) for each in one.outputs}
    assert {Path(url).relative_to(Path.cwd()) for url in recorded} == {
        path for name in ("out", "once", "names") for path in Path(name).glob("[!.]*")
    }
    figures = status("journal", STORAGE)
    assert (figures.state, figures.files, figures.records["reader.messages"]) == ("completed", 6, 18)
    assert not list(Path().rglob(".dagflow-pending/*/*"))


DAMAGES = {
    "removed": lambda pending: pending.unlink(),
    "cut off": lambda pending: pending.write_bytes(b""),
    "written by a child too": lambda pending: pending.write_bytes(pending.read_bytes() * 2),
}


@pytest.mark.parametrize("files", by_day(2, [0, 1, 3, 5, 6]))
@pytest.mark.parametrize("damage", DAMAGES)
def test_the_advice_of_a_window_that_cannot_be_published_helps(
    folder: Path, monkeypatch: pytest.MonkeyPatch, files: int, damage: str
) -> None:
    """The error names the command; after it and a run everything is there once, also what a state remembers."""
    die_publishing(monkeypatch, files)
    [window_id] = state().intents
    left = [Path(file.pending_url) for file in state().intents[window_id].files if Path(file.pending_url).exists()]
    DAMAGES[damage](max(left, key=lambda path: path.stat().st_size))
    for _ in range(2):
        with pytest.raises(LostOutputError, match=r"output was lost|another process has written to it") as error:
            work()
        command = f"dagflow repair {Path('journal').absolute()} --window {window_id}"
        assert error.value.hint.endswith(f"are then: {command}")
    done = CliRunner().invoke(command_line, shlex.split(command)[1:])
    assert done.exit_code == 0, done.output
    assert f"window {window_id} was committed, and 1 file of it cannot be published" in done.stderr
    assert f"continue with: dagflow run {folder / 'app.yaml'}" in done.stderr
    assert sorted(state().planned)[0] == window_id
    watcher = RecordingObserver()
    work(watcher)
    assert f"window {window_id} is planned again" in watcher.notices
    require_all()
    assert work() == 0
    with pytest.raises(JournalError, match=rf"window {window_id} is published\n.*dagflow replay journal --window \d"):
        repair("journal", window_id, STORAGE)


@pytest.mark.parametrize("files", [1, 4])
def test_a_mended_app_replaces_what_a_repaired_window_had_published(
    folder: Path, monkeypatch: pytest.MonkeyPatch, files: int
) -> None:
    """Names that it no longer makes go; --fresh knows the rest."""
    die_publishing(monkeypatch, files)
    [window_id] = state().intents
    left = [Path(file.pending_url) for file in state().intents[window_id].files if Path(file.pending_url).exists()]
    left[0].unlink()
    repair("journal", window_id, STORAGE)
    Path("app.yaml").write_text(APP.replace(", file_name: block", ""))
    work()
    require_all()
    work()
    run(load_app("app.yaml"), RunOptions(fresh=True), runtime=InlineRuntime)
    require_all()


@pytest.mark.parametrize("makes", ["no file", "files of one operator"])
def test_what_a_repaired_window_makes_no_more_goes(folder: Path, monkeypatch: pytest.MonkeyPatch, makes: str) -> None:
    """Its input is gone, and what it has published of that goes too; back again, everything is there once."""
    die_publishing(monkeypatch, 7)
    before = [file for file in state().intents[2].files if Path(file.final_url).exists()]
    assert {Path(file.final_url).parent.name for file in before} == {"out", "once"}
    next(Path(file.pending_url) for file in state().intents[2].files if file not in before).unlink()
    repair("journal", 2, STORAGE)
    Path("in").rename("moved")
    Path("in").mkdir()
    if makes == "no file":
        names = "  names: {class: MetadataWriter, properties: {path: names}}\n"
        to_names = "  files: {from: splitter.files_metadata_output, to: names.input}\n"
        Path("app.yaml").write_text(APP.replace(names, "").replace(to_names, ""))
    work()
    first = TEXTS["a"] + TEXTS["b"]
    assert (visible("out"), visible("once")) == (sorted(first.splitlines()), sorted(set(first.splitlines())))
    # The directory is announced, too, as it is empty.
    assert len(visible("names")) == (2 if makes == "no file" else 5)
    Path("moved").replace("in")
    work()
    assert visible("out") == sorted(line for text in TEXTS.values() for line in text.splitlines())
    assert visible("once") == sorted({line for text in TEXTS.values() for line in text.splitlines()})


def test_files_of_others_are_not_replaced(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that was taken meanwhile ends the run; where it is free again the run goes on."""
    die_publishing(monkeypatch, 0)
    lost, *_ = [file for file in state().intents[1].files if "/out/" in file.final_url]
    Path(lost.pending_url).unlink()
    Path(lost.final_url).write_text("mine")
    with pytest.raises(StorageError, match="the name is taken by another file"):
        work()
    repair("journal", 1, STORAGE)
    for _ in range(2):
        with pytest.raises(StorageError, match=r"the name is taken|holds files that this checkpoint did not publish"):
            work()
        assert Path(lost.final_url).read_text() == "mine"
    Path(lost.final_url).rename("elsewhere")
    work()
    require_all()


def test_what_needs_no_repair_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Windows that are whole, unknown, or of no journal; the journal stays as it is."""
    die_publishing(monkeypatch, 1)
    before = state()
    with pytest.raises(JournalError, match=r"window 1 is committed, and all its files are complete or published\n"):
        repair("journal", 1, STORAGE)
    with pytest.raises(MissingError, match=r"there is no window 9; the newest one is \d"):
        repair("journal", 9, STORAGE)
    assert state() == before
    done = CliRunner().invoke(command_line, ["repair", "nothing", "--window", "1"])
    assert (done.exit_code, "there is no journal" in done.stderr) == (2, True)
    work()
    require_all()


def test_a_planned_window_is_planned_again_by_name(folder: Path) -> None:
    """The app may be given instead of its checkpoint; the windows behind it follow."""
    with pytest.raises(DagflowError, match="lights"):
        run(load_app("app.yaml"), RunOptions(), runtime=crashing(2))
    done = CliRunner().invoke(command_line, ["repair", "app.yaml", "--window", "2", "--json"])
    assert (done.exit_code, done.stdout) == (0, '{"window_id": 2, "lost": [], "kept": []}\n')
    assert "window 2 was planned and not committed; the next run plans it again" in done.stderr
    watcher = RecordingObserver()
    work(watcher)
    assert "window 2 is planned again" in watcher.notices
    require_all()
