"""The checkpoints that a server shows."""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.web.conftest import ROWS, api_of, finish


def test_a_journal_that_begins_anew_is_not_taken_for_the_old_one(folder: Path) -> None:
    """After a checkpoint was removed, the next one of the same length is shown, and nothing of the old one."""
    api = api_of()
    assert [each["url"] for each in api.answer("files", {})["files"]] == [str(folder / "in" / "a.csv")]
    (checkpoint,) = api.checkpoints.values()
    old = checkpoint.mark()[0]
    shutil.rmtree("out")
    (folder / "in" / "a.csv").rename(folder / "in" / "n.csv")
    (folder / "in" / "n.csv").write_bytes(ROWS + b"fox,some\ngnu,7\n")
    finish()
    new = checkpoint.mark()[0]
    assert new[1:] == old[1:]
    assert [each["url"] for each in api.answer("files", {})["files"]] == [str(folder / "in" / "n.csv")]
