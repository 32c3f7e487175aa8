"""The archive of Spark's classes: made with Javas that are scripts, and used, or not used, by a real one."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from dagflow.errors import DagflowError
from dagflow.runtime.java import archive_name, archive_options, cache_folders, find_java_home, make_archive, use_java
from tests.cli.processes import dagflow_command
from tests.runtime.test_java import make_java

APP = """\
name: small
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in]}}
  reader: {class: BlockReader}
  filter: {class: RecordFilter, properties: {drop: {prefix: "."}}, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: filter.input}
  kept: {from: filter.output, to: writer.input}
"""
CLASS_PATH = "/spark/jars/*"
DUMPS = """
for argument do
  case $argument in -XX:SharedArchiveFile=*) echo "$@" > "${argument#*=}" ;; esac
done
"""


def test_what_java_made_is_what_java_is_given(tmp_path: Path) -> None:
    """The classes that a run had loaded are read again from its own class path."""
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = str(make_java(tmp_path / "java", "17", script=DUMPS))
    options = []

    def run(option: str, _: Path) -> str:
        options.append(option)
        return CLASS_PATH

    assert archive_options(home, environ) == ()
    archive = make_archive(home, run, environ)
    listed = options[0].removeprefix("-XX:DumpLoadedClassList=")
    contents = archive.read_text().split()
    assert f"-XX:SharedClassListFile={listed}" in contents
    assert contents[-2:] == ["-cp", CLASS_PATH]
    assert f"-XX:SharedArchiveFile={archive}" in archive_options(home, environ)
    assert list(archive.parent.iterdir()) == [archive]


def test_each_java_has_an_archive_of_its_own(tmp_path: Path) -> None:
    """Another Java could not use it, and would have to be set again after each change."""
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = str(make_java(tmp_path / "java", "17", script=DUMPS))
    make_archive(home, lambda *_: CLASS_PATH, environ)
    assert archive_options(str(tmp_path / "other"), environ) == ()


def test_a_folder_that_cannot_be_looked_into_holds_none() -> None:
    """No run fails for the sake of a faster start."""
    assert archive_options("/java", {"XDG_CACHE_HOME": "/" + "x" * 5000}) == ()


def test_a_java_that_makes_none_leaves_the_last_one_and_says_why(tmp_path: Path) -> None:
    """What was good stays in use; the hint says that nothing depends on it."""
    environ = {"XDG_CACHE_HOME": str(tmp_path / "cache")}
    home = make_java(tmp_path / "java", "17", script=DUMPS)
    archive = make_archive(str(home), lambda *_: CLASS_PATH, environ)
    before = archive.read_text()
    (home / "bin" / "java").write_text("#!/bin/sh\necho not possible here\nexit 1\n")
    with pytest.raises(DagflowError, match="not possible here") as caught:
        make_archive(str(home), lambda *_: CLASS_PATH, environ)
    assert "runs without" in caught.value.hint
    assert archive.read_text() == before
    assert list(archive.parent.iterdir()) == [archive]


def test_nowhere_to_write_is_said_with_the_directories(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them is named, and what to set."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(sys, "prefix", sys.base_prefix)
    monkeypatch.setenv("HOME", str(tmp_path / "file"))
    with pytest.raises(DagflowError, match=str(tmp_path / "file" / "cache")) as caught:
        make_archive("/java", lambda *_: CLASS_PATH, {"XDG_CACHE_HOME": str(tmp_path / "file" / "cache")})
    assert "XDG_CACHE_HOME" in caught.value.hint


@pytest.mark.spark
def test_java_uses_the_archive_that_there_is(spark_context: Any) -> None:
    """The process of the tests' own context has it in its memory."""
    options = archive_options(use_java())
    if not options:
        pytest.skip("`dagflow warm` was not run here")
    pid = spark_context._jvm.java.lang.ProcessHandle.current().pid()
    archive = Path(options[0].partition("=")[2]).resolve()
    assert str(archive) in Path(f"/proc/{pid}/maps").read_text()


@pytest.mark.spark
@pytest.mark.e2e
@pytest.mark.nightly
def test_an_archive_that_is_broken_does_no_harm(tmp_path: Path) -> None:
    """Java goes on without it, and the run comes out the same; also where its folder has a space in its name."""
    home = find_java_home()
    assert home is not None
    environ = {"XDG_CACHE_HOME": str(tmp_path / "my cache")}
    archive = cache_folders(environ)[0] / archive_name(home)
    archive.parent.mkdir(parents=True)
    archive.write_bytes(b"no archive" * 1000)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("one\n.two\n")
    (tmp_path / "app.yaml").write_text(APP)
    done = dagflow_command(["run", "app.yaml"], cwd=tmp_path, **environ)
    assert done.returncode == 0, done.stderr
    assert [path.read_text() for path in (tmp_path / "out").glob("[!.]*")] == ["one\n"]
