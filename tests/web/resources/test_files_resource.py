"""Where lines of files have gone, and how files are found in long journals."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.execution.messages import WindowJob
from dagflow.journal.windows import Window
from dagflow.plan.load import load_app
from dagflow.plan.physical import merger_name
from dagflow.report.manifest import WindowManifest, manifest_of
from dagflow.report.open_rejects import RejectChoice
from dagflow.runtime.local import InlineRuntime
from dagflow.testing.faults import InjectedCrash
from dagflow.web.checkpoints import AppFile, RequestError
from dagflow.web.resources import file_history
from dagflow.web.resources.file_history import last_reader
from tests.web.conftest import APP, ROWS, api_of, ask, finish, with_table


def test_a_line_before_what_was_appended_is_followed(folder: Path) -> None:
    """Each line of a file that has grown leads to the window that read it, also one of an earlier version."""
    url = str(folder / "in" / "a.csv")
    before = ask("files/one", url=url, line="2")["found"]
    with (folder / "in" / "a.csv").open("ab") as file:
        file.write(b"hen,8\n")
    finish()
    assert ask("files/one", url=url, line="2")["found"]["window"] == before["window"]
    assert ask("files/one", url=url, line="9")["found"]["window"] > before["window"]


def test_a_line_is_followed_to_its_output(folder: Path) -> None:
    """The output that is named for a line holds its record, and no other one does."""
    url = str(folder / "in" / "a.csv")
    (version,) = ask("files/one", url=url)["versions"]
    assert [each["start"] for each in version["ranges"]] == sorted(each["start"] for each in version["ranges"])
    assert version["rejects"][0]["offset"] == (folder / "in" / "a.csv").read_bytes().index(b"fox")
    for line, name in ((2, b"ant"), (4, b"cat"), (8, b"gnu")):
        found = ask("files/one", url=url, line=str(line))["found"]
        assert found["offset"] == (folder / "in" / "a.csv").read_bytes().index(name)
        holding = [str(path) for path in (folder / "out" / "records").iterdir() if name in path.read_bytes()]
        assert set(holding) <= set(found["outputs"])
        assert found["sentence"].startswith(
            f"Line {line} begins at byte {found['offset']}. Window {found['window']} read it"
        )
    assert "has fewer lines" in ask("files/one", url=url, line="99")["found"]["sentence"]
    (folder / "in" / "a.csv").write_bytes(b"other")
    assert "not the version any more" in ask("files/one", url=url, line="2")["found"]["sentence"]
    with pytest.raises(RequestError, match="line must be a whole number of at least 1, not '0'"):
        ask("files/one", url=url, line="0")
    with pytest.raises(RequestError, match="no window has read /nowhere"):
        ask("files/one", url="/nowhere")


def test_a_line_is_followed_to_the_window_that_merged_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its outputs are what its window published, and what the later one merged, but not what that one read itself."""
    monkeypatch.chdir(tmp_path)
    Path("app.yaml").write_text(with_table(APP))
    Path("in").mkdir()
    Path("in/a.csv").write_bytes(ROWS)
    finish()
    found = ask("files/one", url=str(tmp_path / "in" / "a.csv"), line="2")["found"]
    row, part = found["outputs"]
    assert b"ant" in Path(row).read_bytes() and [part] == list(map(str, (tmp_path / "out" / "t").glob("*.parquet")))
    assert found["tables"] == {"table": "version 0"}


def test_a_line_waits_as_long_as_its_merge_is_planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that is to merge it, and died before its commit, has published nothing."""
    monkeypatch.chdir(tmp_path)
    Path("app.yaml").write_text(with_table(APP))
    Path("in").mkdir()
    Path("in/a.csv").write_bytes(ROWS)

    def die(window: WindowJob) -> None:
        if any(window.assigned[merger_name("table")]):
            raise InjectedCrash("died")

    with pytest.raises(InjectedCrash, match="died"):
        run(load_app("app.yaml"), runtime=lambda program: InlineRuntime(program, before=die))
    sentence = ask("files/one", url=str(tmp_path / "in" / "a.csv"), line="2")["found"]["sentence"]
    assert "its records wait to be merged" in sentence


def replay_rejects() -> None:
    """Read refused records again with the app in the working directory."""
    run(load_app("app.yaml"), RunOptions(rejects=RejectChoice()), runtime=InlineRuntime)


def test_a_line_that_came_back_is_followed_to_the_window_that_took_it(folder: Path) -> None:
    """That window answers for the records that it took over alone, and those that came back are refused no more."""
    with (folder / "in" / "a.csv").open("ab") as file:
        file.write(b"hen,many\njay,9\nkea,7777\n")
    finish()
    url = str(folder / "in" / "a.csv")
    lines = [str(line) for line in range(2, 12)]
    before = {line: ask("files/one", url=url, line=line)["found"]["window"] for line in lines}
    assert sum(row["rejected"] for row in ask("files")["files"]) == 2
    text = Path("app.yaml").read_text()
    Path("app.yaml").write_text(text.replace("n: int64", "n: int32"))
    replay_rejects()
    refused = ask("files/one", url=url, line="7")["found"]
    assert refused["sentence"].endswith(f"Window {refused['window']} read it again, and it stays refused.")
    assert (refused["outputs"], refused["window"] > max(before.values())) == ([], True)
    Path("app.yaml").write_text(text.replace("n: int64", "n: string").replace("n <> 1", "n <> 'x'"))
    replay_rejects()
    newest = ask("windows")["windows"][0]["window"]
    after = {line: ask("files/one", url=url, line=line)["found"] for line in lines}
    assert {line: each["window"] for line, each in after.items()} == {**before, "7": newest, "9": newest}
    (output,) = after["7"]["outputs"]
    assert b"fox" in Path(output).read_bytes()
    assert [row["rejected"] for row in ask("files")["files"]] == [0] * len(ask("files")["files"])
    versions = ask("files/one", url=url)["versions"]
    assert [(each["size_bytes"], each["rejects"]) for each in versions] == [(76, []), (52, [])]


@pytest.mark.nightly
def test_why_says_how_far_it_has_looked(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In a long journal a request ends in time, and does not take what it has not seen for what is not there."""
    monkeypatch.setattr("dagflow.web.checkpoints.READING_S", -1.0)
    url = str(folder / "in" / "b.txt")
    assert ask("why", url=url)["sentence"].endswith(" The index of what was taken does not have it.")
    newest = ask("windows")["windows"][0]["window"]
    monkeypatch.setattr(AppFile, "why", lambda self, url: {"sentence": "It is not taken.", "taken_ms": None})
    assert f"No window from {newest} on has read it" in ask("why", url=url)["sentence"]


@pytest.mark.nightly
def test_a_file_that_was_read_long_ago_is_found_by_its_splitter(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its index says when a file was taken, and so in which windows: these are looked at, and not all since then."""
    url = str(folder / "in" / "a.csv")
    windows = ask("files/one", url=url)["versions"][0]["windows"]
    for number in range(8):
        (folder / "in" / f"x{number}.csv").write_bytes(ROWS)
    finish()
    looked_at: list[int] = []

    def counting(window: Window) -> WindowManifest:
        looked_at.append(window.plan.window_id)
        return manifest_of(window)

    monkeypatch.setattr("dagflow.web.checkpoints.READING_S", -1.0)
    monkeypatch.setattr(file_history, "manifest_of", counting)
    assert ask("files/one", url=url)["versions"][0]["windows"] == ask("why", url=url)["windows"] == windows
    assert looked_at == windows[::-1] * 2


def test_the_last_window_that_read_a_file_is_found_by_a_moment(folder: Path) -> None:
    """For each file, whatever lies before and behind it."""
    for name in "cdef":
        (folder / "in" / f"{name}.csv").write_bytes(ROWS)
    finish()
    (checkpoint,) = api_of().checkpoints.values()
    store, state = checkpoint.journal()
    for row in ask("files")["files"]:
        moment = row["times"]["planned_ms"]
        emitted = ask(f"windows/{row['windows'][0]}")["times"]["emitted_ms"]
        assert last_reader(store, state, row["url"], emitted) == row["windows"][-1], moment
    assert last_reader(store, state, "/nowhere", 1) == last_reader(store, state, row["url"], 0) == 0
