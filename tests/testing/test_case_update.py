"""What was published is written into the YAML of cases."""

from __future__ import annotations

from pathlib import Path

import yaml

from dagflow.testing.app_cases import Actual, failures_of, read_cases
from dagflow.testing.case_update import update_file, updated

BEFORE = """\
# A note.
app: app.yaml
tests:
  first:  # of two
    files: {in/a: x}
    output: {out: "a\\n", other: }  # in braces
    # between
    records:
      reader.messages: 9  # nine
      filter.output: 1
  'second one':
    output:
      out: |
        old
        lines

      # about the next
      other: old
    rows:
      table:
        - {a: 1}
        - b: 2
          c: 3
      # at the end

    rejected: 2
"""

AFTER = """\
# A note.
app: app.yaml
tests:
  first:  # of two
    files: {in/a: x}
    output: {out: "b\\nc\\n", other: 1st }  # in braces
    # between
    records:
      reader.messages: 3  # nine
      filter.output: 1
  'second one':
    output:
      out: |
        new
        ones

      # about the next
      other: |-
        two
        lines
    rows:
      table:
        - {a: 5, b: "x: y"}
      # at the end

    rejected: 0
"""


def test_what_differs_is_replaced_and_all_else_stays() -> None:
    """Comments, quotes, blank lines and other values are as they were."""
    actuals = [
        Actual(("tests", "first", "output", "out"), "b\nc\n"),
        Actual(("tests", "first", "output", "other"), "1st"),
        Actual(("tests", "first", "records", "reader.messages"), 3),
        Actual(("tests", "second one", "output", "out"), "new\nones\n"),
        Actual(("tests", "second one", "output", "other"), "two\nlines"),
        Actual(("tests", "second one", "rows", "table"), [{"a": 5, "b": "x: y"}]),
        Actual(("tests", "second one", "rejected"), 0),
    ]
    assert updated(BEFORE, actuals) == (AFTER, 7)
    yaml.safe_load(AFTER)


def test_what_an_alias_or_a_merge_key_gives_is_left() -> None:
    """It may be right for the other place."""
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a}\nc: *a\n"
    assert updated(text, [Actual(("b", "x"), 3), Actual(("c", "x"), 3), Actual(("c",), 4)]) == (text, 0)


def test_an_app_with_tests_of_its_own_is_updated(tmp_path: Path) -> None:
    """Its failures are gone afterwards, and its line ends are what they were."""
    app = Path(__file__).parents[2] / "apps" / "block_reader.yaml"
    file = tmp_path / "app.yaml"
    case = 'tests:\r\n  a:\r\n    files: {data/logs/a: "x"}\r\n    output:\r\n      out/records: |\r\n        y\r\n'
    file.write_bytes(app.read_bytes().rstrip() + b"\r\n" + case.encode())
    (case_read,) = read_cases(str(file))
    (failure,) = failures_of(case_read)
    assert failure.actual is not None
    assert update_file(str(file), [failure.actual]) == 1
    assert b"out/records: |\r\n        x\r\n" in file.read_bytes()
    (again,) = read_cases(str(file))
    assert failures_of(again) == []
