"""Source files on the command line."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

from dagflow.cli.main import command_line
from dagflow.storage.concatenated import INDEX_SUFFIX, encode_index


def published(directory: Path, contents: dict[str, bytes]) -> Path:
    """A merged file and its index, as FileMerger publishes them."""
    directory.mkdir(parents=True)
    lengths = np.array([len(content) for content in contents.values()], np.int64)
    paths = pa.chunked_array([list(map(os.fsencode, contents))], pa.binary())
    index = encode_index(paths, np.cumsum(lengths) - lengths, lengths)
    (directory / "merged").write_bytes(b"".join(contents.values()))
    (directory / f"merged{INDEX_SUFFIX}").write_bytes(index)
    return directory


def extract(*args: str) -> Result:
    """The command's result."""
    return CliRunner().invoke(command_line, ["extract", *args])


def test_a_list_has_one_line_for_each_source_file_and_no_two_alike(tmp_path: Path) -> None:
    """Whatever bytes are in their names, and in those of the directories that they were merged into."""
    names = ["\\xff", "\udcff", "a\nb", "a\\nb", "\r", "\\r", "\t", "é"]
    directory = published(tmp_path / "new\nline" / "\udcff", dict.fromkeys(names, b"x"))
    lines = extract(str(directory), "--list").stdout.splitlines()
    assert len({line.split("\t")[3] for line in lines}) == len(lines) == len(names)
    assert {line.split("\t")[1] for line in lines} == {f"{tmp_path}/new\\nline/\\xff/merged"}


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is full")
def test_what_does_not_fit_is_an_error_and_no_bug(tmp_path: Path) -> None:
    """A full disk is not ours to be reported."""
    directory = published(tmp_path / "out", {"a": b"x" * 100_000})
    command = [sys.executable, "-m", "dagflow", "extract", str(directory), "a"]
    with open("/dev/full", "wb") as full:
        ran = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (ran.returncode, "No space left" in ran.stderr, "bug" in ran.stderr) == (1, True, False)


@pytest.mark.nightly
def test_nothing_is_wrong_where_stdout_is_closed(tmp_path: Path) -> None:
    """The content goes nowhere, and the exit code is the answer."""
    directory = published(tmp_path / "out", {"a": b"x"})
    command = ["sh", "-c", 'exec "$@" >&-', "sh", sys.executable, "-m", "dagflow", "extract", str(directory), "a"]
    ran = subprocess.run(command, stderr=subprocess.PIPE, check=False)
    assert (ran.returncode, ran.stderr) == (0, b"")


def test_no_piece_of_a_source_file_is_left_behind(tmp_path: Path) -> None:
    """Where writing fails, the file that was begun goes."""
    directory = published(tmp_path / "out", {"a": b"x" * 4_000_000})
    limited = "import resource, runpy; resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20)); " + (
        "runpy.run_module('dagflow', run_name='__main__')"
    )
    command = [sys.executable, "-c", limited, "extract", str(directory), "a", "-o", str(tmp_path / "a")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (ran.returncode, "File too large" in ran.stderr) == (1, True)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("asked", ["--list", "a"])
def test_a_directory_without_an_index_is_an_error(tmp_path: Path, asked: str) -> None:
    """An empty list would say that nothing was merged, and other outputs of FileMerger have no index."""
    (tmp_path / "merged.jsonl").write_bytes(b"{}\n")
    result = extract(str(tmp_path), asked)
    assert (result.exit_code, "and no index" in result.stderr, "concat" in result.stderr) == (1, True, True)


def test_a_directory_into_which_nothing_was_published_has_nothing(tmp_path: Path) -> None:
    """A run may have found no file yet."""
    result = extract(str(tmp_path), "--list")
    assert (result.exit_code, result.stdout) == (0, "")
