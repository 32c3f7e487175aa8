"""Cases in YAML of what an app makes of some files."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from dagflow.errors import SpecError
from dagflow.testing.app_cases import CaseFailure, failures_of, read_cases

ROOT = Path(__file__).parents[2]
APP = ROOT / "apps" / "block_reader.yaml"


def failures(folder: Path, tests: str) -> list[str]:
    """What fails of the tests in a file, as 'line: message'."""
    file = folder / "test_app.yaml"
    file.write_text(f"app: {APP}\ntests:\n{tests}")
    found: list[CaseFailure] = [failure for case in read_cases(str(file)) for failure in failures_of(case)]
    return [f"{failure.place.line}: {failure.message}" for failure in found]


def test_the_cases_of_the_page_hold(tmp_path: Path) -> None:
    """The file that docs/testing.md shows passes."""
    page = (ROOT / "docs" / "testing.md").read_text("utf-8")
    (text,) = re.findall(r"```yaml\n# test_block_reader.yaml\n(.*?)```", page, re.DOTALL)
    assert failures(tmp_path, text.partition("tests:\n")[2]) == []


def test_each_difference_is_told_at_its_line(tmp_path: Path) -> None:
    """Output as a diff, counts with both figures, and a port that counts nothing."""
    told = failures(
        tmp_path,
        "  all wrong:\n"
        '    files: {data/logs/a.log: "one\\n.two\\n"}\n'
        '    output: {out/records: "one\\nthree\\n"}\n'
        "    records:\n"
        "      filter.output: 2\n"
        "      filter.input: 1\n"
        "    rejected: 4\n",
    )
    assert told[0] == "7: test 'all wrong': 1 records left filter.output, not 2"
    assert told[1].startswith("8: test 'all wrong': no records are counted at 'filter.input'; there are counts of: ")
    assert told[2] == "9: test 'all wrong': 0 records were rejected, not 4"
    assert told[3].startswith("5: test 'all wrong': out/records is different\n    --- expected\n")
    assert told[3].endswith("\n     one\n    -three")


def test_a_case_may_state_that_a_run_fails(tmp_path: Path) -> None:
    """By a part of its message; another failure, or none, fails the case."""
    bad = "    set: {splitter.block_size: 0}\n"
    cases = [
        f"  a:\n{bad}    error: block_size\n",
        f"  a:\n{bad}    error: other words\n",
        f"  a:\n{bad}    rejected: 0\n",
        "  a:\n    files: {data/logs/x: a}\n    error: none\n",
    ]
    held, other, failed, whole = [failures(tmp_path, case) for case in cases]
    assert held == []
    assert other[0].startswith("5: test 'a': expected 'other words' in: ")
    assert failed[0].startswith("3: test 'a': the run failed: ")
    assert whole == ["5: test 'a': the run did not fail"]


def test_mistakes_in_a_file_are_told_together(tmp_path: Path) -> None:
    """Unknown keys, wrong types, and tests that state nothing."""
    with pytest.raises(SpecError, match="has no 'outputs'; did you mean 'output'") as caught:
        failures(tmp_path, "  a: {outputs: x, rejected: no}\n  b: 3\n  c: {files: {a: 1}}\n")
    message = str(caught.value)
    assert "test_app.yaml:3:" in message and "'rejected': expected a whole number" in message
    assert "test 'b': expected a mapping" in message and "test 'c' states nothing" in message
    assert "'a' in 'files': expected text" in message
