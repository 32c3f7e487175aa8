"""Files that were compressed or copied after they were read, and then corrected or deleted; also beside archives."""

from __future__ import annotations

import gzip
import os
import re
import shutil
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.engine.window_replay import replay_windows, superseded_in
from dagflow.errors import DagflowError, JournalError
from dagflow.runtime.local import InlineRuntime
from tests.engine.corrected_app import SUPERSEDE, corrected_app, lines_of, storage, write
from tests.nightly import by_day

Step = Callable[[Path], None]

RETRACT = {**SUPERSEDE, "deleted": "retract"}


def compress(name: str, more: str = "") -> Step:
    """Another file with the same content, or with more of it, takes the place of one."""

    def step(folder: Path) -> None:
        (folder / f"{name}.gz").write_bytes(gzip.compress((folder / name).read_bytes() + more.encode()))
        (folder / name).unlink()

    return step


def put(name: str, content: str) -> Step:
    """Write a file anew, compressed if its name says so, as the inode that it has."""
    data = content.encode()
    return lambda folder: _put(folder / name, gzip.compress(data) if name.endswith(".gz") else data)


def _put(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def append(name: str, content: str) -> Step:
    """Add a member to a compressed file."""
    return lambda folder: _put(folder / name, (folder / name).read_bytes() + gzip.compress(content.encode()))


def copy_and_truncate(content: str, name: str = "a") -> Step:
    """Rotate as logrotate's copytruncate does, and go on."""

    def step(folder: Path) -> None:
        shutil.copy(folder / name, folder / f"{name}.1")
        (folder / name).write_text(content)

    return step


def delete(name: str) -> Step:
    return lambda folder: (folder / name).unlink()


HISTORIES: dict[str, tuple[Sequence[Step], str]] = {
    "grown, compressed, and deleted": ([compress("a", "a7\n"), delete("a.gz")], ""),
    "grown, compressed, and corrected": ([compress("a", "a7\n"), put("a.gz", "a8\n")], "a8"),
}
"""What happens after a run to the file, and which of its lines are in the table then."""

UNKNOWN: dict[str, Sequence[Step]] = {
    "compressed, and deleted": [compress("a"), delete("a.gz")],
    "compressed, and corrected": [compress("a"), put("a.gz", "a7\n")],
    "compressed, continued, and deleted": [compress("a"), append("a.gz", "a7\n"), delete("a.gz")],
    "copied, and the copy deleted": [copy_and_truncate("n1\n"), delete("a.1")],
}
"""What leaves no window that leads from the file to the version that was read."""


def advised_by(error: DagflowError) -> Any:
    """The policies that the hint of an error names."""
    (policies,) = re.findall(r"\{replaced: .*?\}", error.hint)
    return yaml.safe_load(policies)


def run_again(root: Path, kind: str, **properties: Any) -> None:
    run(corrected_app(root, kind, **properties), runtime=InlineRuntime)


@pytest.mark.parametrize("kind", by_day(1, ["delta", "sqlite", "parquet", "iceberg"]))
@pytest.mark.parametrize("history", HISTORIES)
def test_rows_that_were_read_under_another_name_leave(tmp_path: Path, history: str, kind: str) -> None:
    """The window that has read on in the compressed file says what it was before."""
    steps, left = HISTORIES[history]
    write(tmp_path, "a", "a1 a2 a3")
    write(tmp_path, "keep", "k1 k2")
    run_again(tmp_path, kind, on_change=RETRACT)
    for step in steps:
        step(tmp_path / "in")
        run_again(tmp_path, kind, on_change=RETRACT)
    assert lines_of(tmp_path, kind) == sorted(["k1", "k2", *left.split()])


@pytest.mark.parametrize("history", UNKNOWN)
def test_rows_whose_version_is_not_found_do_not_stay_without_a_word(tmp_path: Path, history: str) -> None:
    """The run ends, and the table is as it was; with the policies that the error names, new rows come in beside."""
    write(tmp_path, "a", "a1 a2 a3")
    write(tmp_path, "keep", "k1 k2")
    run_again(tmp_path, "delta", on_change=RETRACT)
    *steps, last = UNKNOWN[history]
    for step in steps:
        step(tmp_path / "in")
        run_again(tmp_path, "delta", on_change=RETRACT)
    last(tmp_path / "in")
    before = lines_of(tmp_path, "delta")
    with pytest.raises(JournalError, match="which rows its earlier version gave is not known") as raised:
        run_again(tmp_path, "delta", on_change=RETRACT)
    assert lines_of(tmp_path, "delta") == before
    write(tmp_path, "b", "b1")
    run_again(tmp_path, "delta", on_change=advised_by(raised.value))
    new = ["a7"] if last is UNKNOWN["compressed, and corrected"][-1] else []
    assert lines_of(tmp_path, "delta") == sorted([*before, *new, "b1"])


def test_a_replay_finds_what_was_read_before_a_file_was_compressed(tmp_path: Path) -> None:
    """The window that goes on in it says under which name; without a promise of corrections, one that goes on does."""
    write(tmp_path, "a", "a1 a2 a3")
    for step in (lambda folder: None, compress("a", "a4\n"), put("a.gz", "b1\n")):
        step(tmp_path / "in")
        run_again(tmp_path, "delta", on_change={"replaced": "reread", "truncated": "reread"})
    assert lines_of(tmp_path, "delta") == ["a1", "a2", "a3", "a4", "b1"]
    lost = superseded_in(str(tmp_path / "journal"), storage())
    replay_windows(corrected_app(tmp_path, "delta"), RunOptions(), sorted(lost), runtime=InlineRuntime, lost=lost)
    assert lines_of(tmp_path, "delta") == ["b1"]


@pytest.mark.parametrize("archive", ["0.zip", "z.zip"])
def test_a_file_beside_a_member_of_an_archive_is_recognised(tmp_path: Path, archive: str) -> None:
    """Members have tags of their versions, and other files fingerprints: both are kept, of whatever batch they are."""
    write(tmp_path, "a", "a1 a2")
    with zipfile.ZipFile(tmp_path / "in" / archive, "w") as opened:
        opened.writestr("m", "m1\n")
    run_again(tmp_path, "delta", batch_bytes=1 << 20)
    inode = os.stat(tmp_path / "in" / "a").st_ino
    put("a", "b1\nb2\nb3\n")(tmp_path / "in")
    assert os.stat(tmp_path / "in" / "a").st_ino == inode
    run_again(tmp_path, "delta", batch_bytes=1 << 20)
    assert lines_of(tmp_path, "delta") == ["b1", "b2", "b3", "m1"]


def test_a_version_that_no_window_leads_to_is_said_and_the_advice_helps(tmp_path: Path) -> None:
    """As where the app did not correct when the file was compressed: the old rows stay, and not without a word."""
    write(tmp_path, "a", "a1 a2")
    write(tmp_path, "keep", "k1")
    run_again(tmp_path, "delta")
    compress("a")(tmp_path / "in")
    run_again(tmp_path, "delta", on_change={"replaced": "reread", "truncated": "reread"})
    delete("a.gz")(tmp_path / "in")
    with pytest.raises(JournalError, match=r"which rows its earlier version gave is not known") as raised:
        run_again(tmp_path, "delta", on_change=RETRACT)
    write(tmp_path, "b", "b1")
    run_again(tmp_path, "delta", on_change=advised_by(raised.value))
    assert lines_of(tmp_path, "delta") == ["a1", "a2", "b1", "k1"]
