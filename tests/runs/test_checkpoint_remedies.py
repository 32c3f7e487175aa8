"""What errors about keys, indices, names and other apps advise: followed to the letter, and nothing is missing."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from dagflow.api import keyed_state
from dagflow.cli.main import command_line
from dagflow.engine import publishers
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.backends.local import LocalFiles
from dagflow.storage.context import StorageContext
from operators import FileSplitterInput
from tests.operators.sink.test_merger import app_in, source_files_of
from tests.runs.remedy_app import GOOD, RemedyApp, refusal

STORAGE = StorageContext.default()


def dying(*_: object, **__: object) -> None:
    """Stand for a driver that dies here."""
    raise DagflowError("the lights went out")


def test_a_window_is_replayed_when_a_run_has_finished_it(app: RemedyApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was decided, and its driver died before it was published."""
    with monkeypatch.context() as patch:
        patch.setattr(publishers, "publish_all", dying)
        refusal(app.run, "the lights went out")
    refusal(lambda: app.replay(1), r"window 1 is not published yet\n    finish it first, with dagflow run")
    app.run()
    for _ in range(2):
        app.replay(1)
        assert app.records() == GOOD


@pytest.mark.parametrize("remedy", ["another directory", "other names"])
def test_a_replay_publishes_elsewhere_where_a_name_is_taken(app: RemedyApp, remedy: str) -> None:
    """Another program takes it meanwhile. Its file stays, and so does all that was published until then."""
    app.parts["splitter"] = ", block_size: 7"
    app.run()
    taken = app.folder / "out" / "part-00000001-00000-0001"
    app.parts["out"] = "out, max_bytes: 1"

    def take(_: object) -> None:
        taken.write_text("mine")

    late = functools.partial(InlineRuntime, before=take)
    refusal(
        lambda: app.replay(1, late), r"another program has taken\n    publish into another directory, or under other"
    )
    assert app.records() == sorted([*GOOD, "mine"])
    app.parts["out"] = "elsewhere, max_bytes: 1" if remedy == "another directory" else "out, file_name: block"
    app.put("more", "more\n")
    app.replay(1)
    assert sorted([*app.records(), *app.records("elsewhere")]) == sorted([*GOOD, "mine"])
    app.run()
    assert sorted([*app.records(), *app.records("elsewhere")]) == sorted([*GOOD, "mine", "more"])


def later_keys(patch: pytest.MonkeyPatch) -> None:
    """Be a version of dagflow with another form of keyed state."""
    patch.setattr(keyed_state, "_VERSION", 9)


def later_splitter(patch: pytest.MonkeyPatch) -> None:
    """Be a version of dagflow with another form of the splitter's state."""
    patch.setattr(FileSplitterInput, "state_version", 9)


@pytest.mark.parametrize("later", [later_keys, later_splitter])
def test_state_of_another_version_goes_on_with_that_version(
    app: RemedyApp, later: Callable[[pytest.MonkeyPatch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Or all output is made anew; until then what was published stays."""
    app.add_deduplicator()
    with monkeypatch.context() as patch:
        later(patch)
        app.run()
    app.put("again", "good 2\nnew\n")
    refusal(app.run, r"version 9.*\n    run the version .* or start over with --fresh")
    assert app.records() == GOOD
    with monkeypatch.context() as patch:
        later(patch)
        app.run()
    assert app.records() == sorted([*GOOD, "new"])
    app.put("last", "last\n")
    refusal(app.run, r"version 9")
    app.run_fresh()
    assert app.records() == sorted([*GOOD, "new", "last"])


def test_two_apps_on_one_checkpoint_run_when_one_has_its_own(app: RemedyApp) -> None:
    """As the error says; another name alone is not enough where the app names its checkpoint."""
    app.run()
    app.parts |= {"name": "other", "out": "others"}
    refusal(lambda: app.run(file="b.yaml"), r"give \S+b\.yaml a `checkpoint` of its own")
    app.parts["checkpoint"] = "its-own"
    app.run(file="b.yaml")
    assert (app.records(), app.records("others")) == (GOOD, GOOD)


def test_an_app_replaces_another_one_whose_file_was_moved_away(app: RemedyApp) -> None:
    """With the name of the other one it goes on where that stopped; with another name it has to say --fresh."""
    app.run()
    app.parts["out"] = "others"
    refusal(lambda: app.run(file="b.yaml"), r"if it is to replace the other one, move that file away")
    (app.folder / "app.yaml").rename("away.yaml")
    app.put("more", "more\n")
    app.run(file="b.yaml")
    assert (app.records(), app.records("others")) == (GOOD, ["more"])
    (app.folder / "b.yaml").rename("away-too.yaml")
    app.parts |= {"name": "other", "out": "third"}
    refusal(lambda: app.run(file="c.yaml"), r"--fresh starts over here, and removes the output of 'advised'")
    assert (app.records(), app.records("others")) == (GOOD, ["more"])
    app.run(file="c.yaml", fresh=True)
    assert (app.records(), app.records("others"), app.records("third")) == ([], [], sorted([*GOOD, "more"]))


def test_what_was_left_of_a_start_over_is_finished_by_another(app: RemedyApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """It died while it removed files: a plain run is refused, and with --fresh all is made again."""
    app.run()
    with monkeypatch.context() as patch:
        patch.setattr(LocalFiles, "remove", dying)
        refusal(app.run_fresh, "the lights went out")
    refusal(app.run, r"was interrupted .*\n    run again with --fresh; it continues where it stopped")
    app.run_fresh()
    assert app.records() == GOOD


def test_a_name_that_a_start_over_needs_is_made_free(app: RemedyApp) -> None:
    """Something else lies where the old journal goes; it stays, and so does all that was published until then."""
    app.run()
    (app.folder / "journal" / "aside").mkdir()
    taken = app.folder / "journal" / "aside" / f"{2:012d}"
    taken.write_text("mine")
    refusal(app.run_fresh, r"the name for the old journal is taken\n    move the existing one away, and run again")
    assert app.records() == GOOD
    taken.rename("mine")
    app.run_fresh()
    assert (app.records(), Path("mine").read_text()) == (GOOD, "mine")


@pytest.mark.nightly
@pytest.mark.parametrize("which", [0, -1])
def test_an_index_of_files_goes_on_when_it_is_put_back(app: RemedyApp, which: int) -> None:
    """No file is read twice; with --fresh, the other remedy, all are read again, and published once."""
    names = [f"{number:04}" for number in range(1200)]
    for name in names:
        app.put(name, name)
    app.run()
    index = sorted(Path("journal/state/splitter").rglob("*.parquet"), key=os.path.getmtime)[which]
    index.rename("away")
    app.put("more", "more\n")
    refusal(app.run, r"the index of processed files lacks .*put the checkpoint back as it was, with its index, or")
    assert app.records() == sorted([*GOOD, *names])
    Path("away").rename(index)
    app.run()
    assert app.records() == sorted([*GOOD, *names, "more"])
    index.unlink()
    refusal(app.run, r"lacks .*start over with --fresh")
    app.run_fresh()
    assert app.records() == sorted([*GOOD, *names, "more"])


@pytest.mark.nightly
@pytest.mark.parametrize("where", ["entries", "footer"])
def test_a_damaged_index_of_files_goes_on_when_it_is_put_back(app: RemedyApp, where: str) -> None:
    """A bit that flipped, in entries or in what describes them, makes no file come twice; both remedies work."""
    names = [f"{number:04}" for number in range(1200)]
    for name in names:
        app.put(name, name)
    app.run()
    index = max(Path("journal/state/splitter").rglob("*.parquet"), key=lambda path: path.stat().st_size)
    good = index.read_bytes()
    # Some bytes between the entries mean nothing, such as the bounds of a page, which are not read.
    column = pq.read_metadata(index).row_group(0).column(0)
    entries = column.data_page_offset + column.total_compressed_size // 2
    place = entries if where == "entries" else len(good) - 100
    index.write_bytes(good[:place] + bytes([good[place] ^ 16]) + good[place + 1 :])
    app.put("more", "more\n")
    refusal(app.run, rf"{index.name}: a file of the index of processed files was damaged .*put the checkpoint back as")
    assert app.records() == sorted([*GOOD, *names])
    damaged = index.read_bytes()
    index.write_bytes(good)
    app.run()
    assert app.records() == sorted([*GOOD, *names, "more"])
    index.write_bytes(damaged)
    app.put("yet more", "yet more\n")
    refusal(app.run, r"damaged .*start over with --fresh")
    app.run_fresh()
    assert app.records() == sorted([*GOOD, *names, "more", "yet more"])


def test_a_damaged_state_of_an_operator_goes_on_when_it_is_put_back(app: RemedyApp) -> None:
    """A bit of a key that flipped would let a record through that was published before."""
    app.add_deduplicator()
    texts = [f"text {number:04}" for number in range(1000)]
    app.put("texts", "\n".join(texts) + "\n")
    app.run()
    damaged = {}
    for path in Path("journal/segments").iterdir():
        damaged[path] = path.read_bytes()
        path.write_bytes(damaged[path].replace(b"text 0500", b"text 0580"))
    app.put("again", "text 0500\nnew\n")
    refusal(app.run, r"the state of an operator was damaged .*put the checkpoint back as it was, with its segments, or")
    for path, good in damaged.items():
        path.write_bytes(good)
    app.run()
    assert app.records() == sorted([*GOOD, *texts, "new"])


def test_two_writers_of_one_directory_get_one_each(app: RemedyApp) -> None:
    """The run is refused before anything is read."""
    app.parts |= {
        "operators": "\n  second: {class: RecordWriter, properties: {path: out}, partition: parallel}",
        "to": "[writer.input, second.input]",
    }
    refusal(app.run, r"would both publish here\n    give each of them a path of its own")
    app.parts["operators"] = app.parts["operators"].replace("path: out", "path: second")
    app.run()
    assert (app.records(), app.records("second")) == (GOOD, GOOD)


def merging(root: Path, cleaner: str = "") -> None:
    """Merge what is below a directory."""
    run(app_in(root, cleaner=cleaner), RunOptions(), runtime=InlineRuntime)


def test_a_merged_file_is_found_when_its_index_was_made_again(tmp_path: Path) -> None:
    """As soon as the bad one is away and its window has run again; all others stay."""
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / name).write_text(name)
    merging(tmp_path)
    index, *_ = (tmp_path / "out").glob("*.index.parquet")
    index.write_bytes(b"PAR1")
    extract = ["extract", str(tmp_path / "out"), "a"]
    refused = CliRunner().invoke(command_line, extract)
    assert refused.exit_code == 1
    assert "or move this one away; `dagflow replay` writes it again" in refused.output
    index.rename(tmp_path / "away")
    replay = ["replay", str(tmp_path / "merge.yaml"), "--window", "1", "--local", "--workers", "1"]
    assert CliRunner().invoke(command_line, replay).exit_code == 0
    done = CliRunner().invoke(command_line, extract)
    assert (done.exit_code, done.stdout) == (0, "a")
    assert source_files_of(tmp_path) == {"a": b"a", "b": b"b"}


def test_an_archive_on_another_file_system_is_put_on_that_of_the_files(tmp_path: Path, elsewhere: Path) -> None:
    """Every file is merged once, and archived."""
    (tmp_path / "in").mkdir()
    for name in "ab":
        (tmp_path / "in" / name).write_text(name)
    options = f"action: archive, below: {tmp_path}/in, archive: {{}}"
    for _ in range(2):
        with pytest.raises(DagflowError, match=r"(?s)cannot archive .*put the archive on the file system of"):
            merging(tmp_path, options.format(elsewhere))
    assert list(elsewhere.rglob("*")) == []
    merging(tmp_path, options.format(tmp_path / "old"))
    assert source_files_of(tmp_path) == {"a": b"a", "b": b"b"}
    assert {path.name: path.read_text() for path in (tmp_path / "old").iterdir()} == {"a": "a", "b": "b"}
    assert list((tmp_path / "in").iterdir()) == []


def test_an_archive_that_was_read_as_input_is_put_elsewhere(tmp_path: Path) -> None:
    """Files are recognised there, and an empty one has nothing that could come twice."""
    (tmp_path / "in").mkdir()
    for name, content in {"a": "a", "b": "b", "empty": ""}.items():
        (tmp_path / "in" / name).write_text(content)
    options = f"action: archive, below: {tmp_path}/in, archive: {{}}"
    merging(tmp_path, options.format(tmp_path / "in" / "old"))
    before = source_files_of(tmp_path)
    with pytest.raises(DagflowError, match=r"(?s)in the archive was read as input.*where the splitter does not look"):
        merging(tmp_path, options.format(tmp_path / "in" / "old"))
    merging(tmp_path, options.format(tmp_path / "old"))
    after = source_files_of(tmp_path)
    assert {name: content for name, content in after.items() if content} == {"a": b"a", "b": b"b"}
    assert before.items() <= after.items()


def test_writers_of_whole_blocks_are_joined_to_their_reader(app: RemedyApp) -> None:
    """Behind an exchange two tasks would write one name; the window that failed runs again with the mended app."""
    (app.folder / "in" / "good").write_text("".join(f"good {number:1000}\n" for number in range(9000)))
    text = (
        "name: blocks\nattributes: {checkpoint: journal}\noperators:\n"
        "  splitter: {class: FileSplitterInput, properties: {files: [in]}}\n"
        "  reader: {class: BlockReader}\n"
        "  writer: {class: RecordWriter, properties: {path: out, file_name: block}, partition: PARTITION}\n"
        "streams:\n  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}\n"
        "  records: {from: reader.messages, to: writer.input}\n"
    )
    file = app.folder / "app.yaml"

    def work(partition: str) -> None:
        file.write_text(text.replace("PARTITION", partition))
        run(load_app("app.yaml"), runtime=InlineRuntime)

    refusal(lambda: work("2"), r"join it to its reader with partition: parallel")
    work("parallel")
    assert len(app.records()) == 9000
