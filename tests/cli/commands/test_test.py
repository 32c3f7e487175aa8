"""`dagflow test` as a person starts it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.processes import dagflow_command

APP = """\
name: sample
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in]}}
  reader: {class: BlockReader}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""

TESTS = """\
app: app.yaml
tests:
  holds: {files: {in/a: "one\\n"}, output: {out: "one\\n"}}
  fails: {files: {in/a: "one\\n"}, output: {out: "two\\n"}}
"""


def test_tests_are_found_and_failures_shown(tmp_path: Path) -> None:
    """Below the working directory, or beside an app; differences go to standard output."""
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "other.yaml").write_text(APP)
    (tmp_path / "test_app.yaml").write_text(TESTS)
    for arguments in ([], ["app.yaml"]):
        done = dagflow_command(["test", *arguments], cwd=tmp_path)
        assert done.returncode == 1 and "1 test passed, 1 failed in" in done.stderr
        assert done.stdout.startswith("test_app.yaml:4: test 'fails': out is different\n") and "+one" in done.stdout
    none = dagflow_command(["test", "other.yaml"], cwd=tmp_path)
    assert none.returncode == 2 and "there is no test" in none.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.yaml", "other.yaml", "test_app.yaml"]
