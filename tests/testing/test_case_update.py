"""What was published is written into the YAML of cases."""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from dagflow.errors import StorageError
from dagflow.spec.problems import Problems
from dagflow.spec.yaml_parser import parse_text
from dagflow.spec.yaml_tree import Environment, plain
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


def test_a_value_far_behind_its_tag_is_found() -> None:
    """White space can be divided in more ways than could be tried."""
    text = f"expect: !!str\n{' ' * 400}hello\n"
    assert updated(text, [Actual(("expect",), "bye")]) == (text.replace("hello", "bye"), 1)


def test_what_an_alias_or_a_merge_key_gives_is_left() -> None:
    """It may be right for the other place."""
    text = "a: &a {x: 1, y: 2}\nb: {<<: *a}\nc: *a\n"
    assert updated(text, [Actual(("b", "x"), 3), Actual(("c", "x"), 3), Actual(("c",), 4)]) == (text, 0)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("a:  # why", "a: |  # why\n  x\n  y"),
        ("a: null  # why", "a: |  # why\n  x\n  y"),
        ("a: &x old  # why\nb: *x", "a: &x |  # why\n  x\n  y\nb: *x"),
        ('a: "old\n  text"  # why', "a: |  # why\n  x\n  y"),
        ("a: |  # why\n  old\n# not its own", "a: |  # why\n  x\n  y\n# not its own"),
        ("? a\n: old  # why\nb: 1", "? a\n: |  # why\n    x\n    y\nb: 1"),
        ("a:  # why\n  &x\n  # how\n  old  # what\nb: *x", None),
        ("{a: &x old,  # why\n b: *x}", '{a: &x "x\\ny\\n",  # why\n b: *x}'),
    ],
)
def test_a_comment_and_an_anchor_stay_at_a_new_text(before: str, after: str | None) -> None:
    """A comment goes into the first line of a block, where it is no part of the text."""
    text, count = updated(f"{before}\n", [Actual(("a",), "x\ny\n")])
    assert count == 1
    assert yaml.safe_load(text)["a"] == "x\ny\n"
    assert [each for each in ("# why", "# how", "# what") if each in before and each not in text] == []
    if after is not None:
        assert text == f"{after}\n"


def test_an_anchor_inside_that_others_use_keeps_its_value() -> None:
    """The value is left as it is, since its alias would mean nothing; others are written."""
    text = "a: [&x 1, 2]\nb: *x\nc: 1\n"
    assert updated(text, [Actual(("a",), [3]), Actual(("c",), 4)]) == (text.replace("c: 1", "c: 4"), 1)


OLD = st.sampled_from(
    [
        "",
        "null",
        "old",
        '"old"',
        "'old'",
        '"old\n    text"',
        "plain\n    text",
        "[]",
        "{}",
        "[1,\n    2]",
        "{a: 1}",
        "|%\n    old\n    text",
        "|+%\n    old\n\n",
        ">-%\n    old",
        "%\n    - a: 1\n    - b",
        "%\n    a: 1\n    b: |\n      c",
        "%\n    # inside\n    - 1",
        "%\n    old",
        "%\n    []",
    ]
)
WORDS = st.text("ab \n#:-${}&*|'\"", max_size=12)
NEW = (
    WORDS
    | st.lists(st.dictionaries(WORDS, WORDS, max_size=2), max_size=2)
    | st.dictionaries(WORDS, WORDS.map(lambda text: text * 9), max_size=3)
    | st.integers()
)


@st.composite
def documents(draw: st.DrawFn) -> str:
    """A mapping of blocks that has `k`, with a comment, an anchor and neighbours, or not."""
    anchor = draw(st.sampled_from(["", " &x"]))
    comment = draw(st.sampled_from(["", "  # comment"]))
    old = draw(OLD)
    value = f"{anchor} {old}" if old and not old.startswith("%") else anchor + old
    value = value.replace("%", comment, 1) if "%" in value else value + comment
    key = draw(st.sampled_from(["  k:", "  ? k\n  :"]))
    blank = draw(st.sampled_from(["", "\n", "\n\n"]))
    use = "  m: *x\n" if anchor and draw(st.booleans()) else ""
    return f"# first\na:\n  j: 1  # one\n{key}{value}\n{blank}  # behind\n  l: 2  # two\n{use}b: 3\n"


@given(documents(), NEW)
@example("a:\n  k:\nb: 3\n", "-")
@example("a:\n  k: |+\n    old\n\n\nb: 3\n", "x\n\n")
def test_any_value_takes_the_place_of_any_other(text: str, new: Any) -> None:
    """What is read back is the new value, where its anchor is used too; nothing else changes, and no comment goes."""
    done, count = updated(text, [Actual(("a", "k"), new)])
    assert count == 1
    before, after = read(text), read(done)
    before["a"]["k"] = new
    if "m" in before["a"]:
        before["a"]["m"] = new
    assert after == before
    assert done.count("# comment") - str(new).count("# comment") == text.count("# comment")
    assert [line for line in text.splitlines() if line.lstrip().startswith("#") and line not in done.splitlines()] in (
        [],
        ["    # inside"],
    )
    again, _ = updated(text.replace("\n", "\r\n"), [Actual(("a", "k"), new)])
    assert again == done.replace("\n", "\r\n")


def read(text: str) -> Any:
    """A document as dagflow reads it."""
    problems = Problems()
    root = parse_text(text, "x.yaml", Environment({}), problems)
    assert root is not None and not problems, f"{problems.found} in {text!r}"
    return plain(root)


@contextlib.contextmanager
def files_of_at_most(size_bytes: int) -> Iterator[None]:
    """Let this process write no file beyond a size, as on a disk that is full."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    """A full disk takes no tests away; a file that is replaced keeps its permissions, and a link to it stays."""
    file, link = tmp_path / "own.yaml", tmp_path / "test_x.yaml"
    file.write_text(BEFORE)
    file.chmod(0o640)
    link.symlink_to(file)
    actuals = [Actual(("tests", "first", "records", "reader.messages"), 8)]
    with files_of_at_most(100), pytest.raises(StorageError, match=r"test_x\.yaml.*cannot write: File too large"):
        update_file(str(link), actuals)
    assert (file.read_text(), sorted(tmp_path.iterdir())) == (BEFORE, [file, link])
    assert update_file(str(link), actuals) == 1
    assert (file.read_text(), file.stat().st_mode & 0o777) == (BEFORE.replace(": 9  #", ": 8  #"), 0o640)
    assert link.is_symlink()


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
