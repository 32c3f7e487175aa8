"""What a text is written to stays what it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dagflow.cli.locations import write_whole
from dagflow.errors import DagflowError
from tests.cli.processes import PATIENCE_S, environment


def test_a_link_stays_and_the_file_that_it_names_is_replaced(tmp_path: Path) -> None:
    """In the directory of that file, whose links to the old one keep the old text; a file not there yet is made."""
    folder = tmp_path / "real"
    folder.mkdir()
    real, other, link = folder / "a.txt", tmp_path / "other", tmp_path / "link"
    link.symlink_to(real)
    (tmp_path / "second").symlink_to("link")
    write_whole(tmp_path / "second", "first", "the text")
    assert real.read_text() == "first"
    os.link(real, other)
    write_whole(link, "größer", "the text")
    assert (real.read_text(encoding="utf-8"), other.read_text()) == ("größer", "first")
    assert link.is_symlink() and (tmp_path / "second").is_symlink()
    assert (os.listdir(folder), real.stat().st_mode & 0o777) == (["a.txt"], 0o644)


@pytest.mark.parametrize("name", ["pipe", "link"])
def test_a_pipe_is_written_to(tmp_path: Path, name: str) -> None:
    """As into a device: no regular file takes its place, and nothing else is left beside it."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_whole(tmp_path / name, "text", "the text")
        assert os.read(reader, 100) == b"text"
    finally:
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo() and sorted(os.listdir(tmp_path)) == ["link", "pipe"]


@pytest.mark.parametrize("number", [1, 2])
def test_output_that_is_appended_to_a_file_is(tmp_path: Path, number: int) -> None:
    """Such as that of a shell's `>> log`: what the file holds before and behind stays."""
    link, log = tmp_path / "link", tmp_path / "log"
    link.symlink_to(f"/dev/fd/{number}")
    log.write_text("before\n")
    code = (
        "import os; from pathlib import Path; from dagflow.cli.locations import write_whole\n"
        f"write_whole(Path({str(link)!r}), 'text\\n', 'the text'); os.write({number}, b'behind\\n')"
    )
    with log.open("ab") as appended:
        out, err = (appended, None) if number == 1 else (None, appended)
        command = [sys.executable, "-c", code]
        subprocess.run(command, env=environment(), stdout=out, stderr=err, check=True, timeout=PATIENCE_S)
    assert (log.read_text(), link.is_symlink()) == ("before\ntext\nbehind\n", True)


def test_links_that_name_each_other_are_an_error(tmp_path: Path) -> None:
    """With the file as it was given; the links stay."""
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).symlink_to(other)
    with pytest.raises(DagflowError, match=r"/a: cannot write the text: Too many levels of symbolic links"):
        write_whole(tmp_path / "a", "text", "the text")
    assert (tmp_path / "a").is_symlink()
