"""`dagflow test`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.commands.inspected_app import invoke

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


def test_tests_are_found_and_failures_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Below the working directory, or beside an app; differences go to standard output."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "app.yaml").write_text(APP)
    (tmp_path / "other.yaml").write_text(APP)
    (tmp_path / "test_app.yaml").write_text(TESTS)
    for arguments in ([], ["app.yaml"]):
        code, out, err = invoke("test", *arguments)
        assert code == 1 and "1 test passed, 1 failed in" in err
        assert out.startswith("test_app.yaml:4: test 'fails': out is different\n") and "+one" in out
    code, _, err = invoke("test", "--update")
    assert code == 0 and "test_app.yaml: 1 value updated\n2 tests passed, 0 failed" in err
    assert (tmp_path / "test_app.yaml").read_text() == TESTS.replace("two", "one")
    code, _, err = invoke("test", "other.yaml")
    assert code == 2 and "there is no test" in err
    (tmp_path / "other.yaml").write_text(APP + TESTS.partition("\n")[2])
    for arguments in ([], ["other.yaml"]):
        code, out, err = invoke("test", *arguments)
        assert code == 1 and f"{3 if not arguments else 1} test" in err
        assert out.startswith("other.yaml:11: test 'fails': out is different\n")
    assert invoke("validate", "other.yaml")[0] == 0
    (tmp_path / "other.yaml").write_text(APP + "tests: {a: {outputs: {}}}\n")
    code, _, err = invoke("validate", "other.yaml")
    assert code == 2 and "has no 'outputs'; did you mean 'output'" in err
    (tmp_path / "other.yaml").write_text(APP)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["app.yaml", "other.yaml", "test_app.yaml"]
