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
    updated = dagflow_command(["test", "--update"], cwd=tmp_path)
    assert updated.returncode == 0 and "test_app.yaml: 1 value updated\n2 tests passed, 0 failed" in updated.stderr
    assert (tmp_path / "test_app.yaml").read_text() == TESTS.replace("two", "one")
    none = dagflow_command(["test", "other.yaml"], cwd=tmp_path)
    assert none.returncode == 2 and "there is no test" in none.stderr
    (tmp_path / "other.yaml").write_text(APP + TESTS.partition("\n")[2])
    for arguments in ([], ["other.yaml"]):
        own = dagflow_command(["test", *arguments], cwd=tmp_path)
        assert own.returncode == 1 and f"{3 if not arguments else 1} test" in own.stderr
        assert own.stdout.startswith("other.yaml:11: test 'fails': out is different\n")
    valid = dagflow_command(["validate", "other.yaml"], cwd=tmp_path)
    assert valid.returncode == 0
    (tmp_path / "other.yaml").write_text(APP + "tests: {a: {outputs: {}}}\n")
    wrong = dagflow_command(["validate", "other.yaml"], cwd=tmp_path)
    assert wrong.returncode == 2 and "has no 'outputs'; did you mean 'output'" in wrong.stderr
    (tmp_path / "other.yaml").write_text(APP)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.yaml", "other.yaml", "test_app.yaml"]
