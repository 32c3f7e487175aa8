"""Files that windows hold back, as the journal counts them."""

from __future__ import annotations

import pytest

from dagflow.journal.state import HeldFiles
from dagflow.journal.windows import WindowIntent, WindowPlan
from dagflow.storage.pending import FileFacts, PendingFile


def file(name: str, operator: str = "table") -> PendingFile:
    """A file that is held back."""
    return PendingFile(f"/out/{name}", f"/out/.pending/{name}", 1, 1, facts=FileFacts(operator, held=[]))


def names(held: HeldFiles, operator: str = "table") -> list[tuple[int, str]]:
    """What waits, with its windows."""
    return [(each.window_id, each.file.final_url) for each in held.waiting.get(operator, [])]


@pytest.fixture
def held() -> HeldFiles:
    """Three windows have held back a file each; the fourth takes those of the first two, and holds one itself."""
    held = HeldFiles()
    for window_id in (1, 2, 3):
        held.commit(WindowPlan(window_id), WindowIntent(window_id, held=[file(f"{window_id}")], committed_ms=window_id))
    held.commit(WindowPlan(4, takes={"table": 2}), WindowIntent(4, held=[file("4")]))
    return held


def test_a_window_takes_the_files_of_earlier_windows(held: HeldFiles) -> None:
    """The ones that its plan names; the others wait. Until the window is published all of them are needed."""
    assert names(held) == [(3, "/out/3"), (4, "/out/4")]
    assert [each.final_url for each in held.taken_by(4)] == ["/out/1", "/out/2"]
    assert {each.final_url for each in held.files()} == {"/out/1", "/out/2", "/out/3", "/out/4"}
    assert {each.final_url for each in held.files({2, 4})} == {"/out/1", "/out/3"}
    held.publish(4)
    assert held.taken_by(4) == []
    assert {each.final_url for each in held.files()} == {"/out/3", "/out/4"}


def test_a_commit_that_is_taken_back_gives_the_files_back(held: HeldFiles) -> None:
    """In their order, and without what the window itself has held."""
    held.take_back(4)
    assert names(held) == [(1, "/out/1"), (2, "/out/2"), (3, "/out/3")]
    assert held.taken_by(4) == []


def test_what_a_planned_window_takes_is_not_free(held: HeldFiles) -> None:
    """Whether it is committed or not."""
    assert [each.window_id for each in held.free("table", [])] == [3, 4]
    assert [each.window_id for each in held.free("table", [WindowPlan(5, takes={"table": 3})])] == [4]
    assert held.free("other", []) == []


def test_a_window_counts_as_published_with_all_before_it(held: HeldFiles) -> None:
    """As soon as nothing is held of it, and of any operator."""
    assert held.published_through(4) == 2
    held.commit(WindowPlan(5, takes={"table": 4}), WindowIntent(5, held=[file("5", "other")]))
    assert held.published_through(5) == 4
    held.commit(WindowPlan(6, takes={"other": 5}), WindowIntent(6))
    assert held.published_through(6) == 6


def test_a_file_of_a_result_holds_the_windows_of_the_result(held: HeldFiles) -> None:
    """What was held as a result may be held as a file of the window that publishes it."""
    held.commit(WindowPlan(5, takes={"table": 4}), WindowIntent(5, held=[file("5")]), since_window=2)
    assert held.published_through(5) == 1
    held.commit(WindowPlan(6, takes={"table": 5}), WindowIntent(6))
    assert held.published_through(6) == 6
