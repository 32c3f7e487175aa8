"""What stands for an app or a checkpoint on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands.inspected_app import folder, invoke

__all__ = ["folder"]


@pytest.mark.parametrize("command", [["replay"], ["repair"], ["status"], ["scan"]])
def test_a_checkpoint_inside_of_an_app_file_is_reported_as_the_app(folder: Path, command: list[str]) -> None:
    """What a person has made of the app's name is no store that cannot be listed."""
    window = [] if command[0] in ("status", "scan") else ["--window", "1"]
    code, _, err = invoke(*command, "app.yaml/snap", *window)
    assert code == 2
    assert "app.yaml/snap is no checkpoint: app.yaml is a file; if it is an app, give app.yaml alone" in err


def test_a_run_refuses_a_file_as_its_checkpoint(folder: Path) -> None:
    """Before anything is made or read."""
    for given, message in (
        ("app.yaml", "app.yaml is a file, and a checkpoint is a directory"),
        ("app.yaml/x", "is a file;"),
    ):
        code, _, err = invoke("run", "app.yaml", "--local", "--checkpoint", given)
        assert code == 2
        assert message in err
        assert sorted(each.name for each in folder.iterdir()) == ["app.yaml", "in"]


def test_a_window_of_a_checkpoint_without_any_is_reported_as_one_of_none(folder: Path) -> None:
    """Not "windows 1 to 0 are known"."""
    code, _, err = invoke("replay", "app.yaml", "--window", "1")
    assert code != 0
    assert "no run has planned a window on this checkpoint yet" in err


MERGING = """\
name: merging
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader, properties: {format: whole_file}}
  merger: {class: FileMerger, properties: {path: merged}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  files: {from: reader.messages, to: merger.input}
"""


def test_extract_takes_the_app_that_merged_the_files(folder: Path) -> None:
    """Its merger says where they are; for an app without one, the error says so."""
    (folder / "merging.yaml").write_text(MERGING)
    assert invoke("run", "merging.yaml", "--local", "--workers", "1", "-q")[0] == 0
    by_directory = invoke("extract", "merged", "--list")
    assert by_directory[0] == 0 and "a.txt" in by_directory[1]
    assert invoke("extract", "merging.yaml", "--list") == by_directory
    code, _, err = invoke("extract", "app.yaml", "--list")
    assert code == 2
    assert "app.yaml does not say where merged files are" in err
