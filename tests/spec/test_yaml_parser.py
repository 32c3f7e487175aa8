"""YAML becomes nodes with places, or problems; never a traceback."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.errors import MOST_LEVELS
from dagflow.spec.problems import Problems
from dagflow.spec.yaml_parser import MAX_NODES, parse_file, parse_text, resolve
from dagflow.spec.yaml_tree import Environment, Mapping, Node, follow, plain


def parse(text: str) -> tuple[Node | None, list[str]]:
    problems = Problems()
    node = parse_text(text, "a.yaml", Environment({}), problems)
    return node, [str(problem) for problem in problems.found]


def test_each_key_and_value_knows_its_place() -> None:
    """Lines and columns are 1-based and those of the very key or value."""
    node, problems = parse("a: 1\nb:\n  - x\n  - {c: 2}\n")
    assert problems == [] and node is not None
    value, place, steps = follow(node, ["b", 1, "c"])
    assert (place.line, place.column) == (4, 6)
    assert (value.place.line, value.place.column) == (4, 9)
    assert steps == ("b", 1, "c")


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("5", 5),
        ("-0x", "-0x"),
        ("0o17", 15),
        ("0xff", 255),
        ("010", 10),
        ("1.5e3", 1500.0),
        (".inf", float("inf")),
        ("-.INF", float("-inf")),
        ("true", True),
        ("yes", "yes"),
        ("on", "on"),
        ("~", None),
        ("", None),
        ("2024-01-01", "2024-01-01"),
        ("12:30", "12:30"),
        ("9" * 5000, "9" * 5000),
    ],
)
def test_unquoted_scalars_mean_what_the_core_schema_says(text: str, value: object) -> None:
    """No date, no sexagesimal number, no yes and no; digits beyond measure stay text."""
    assert resolve(text) == value


def test_quoted_and_tagged_scalars_are_what_they_say() -> None:
    """Quotes and !!str make text, !!float makes a number of a whole one."""
    node, problems = parse("['5', !!str 5, !!float 5, !!null '']")
    assert problems == [] and node is not None
    assert plain(node) == ["5", "5", 5.0, None]


def test_keys_are_the_text_that_was_typed() -> None:
    """`on` and `1` are keys as they stand."""
    node, _ = parse("on: 1\n1: 2\n")
    assert node is not None and plain(node) == {"on": 1, "1": 2}


def test_a_merge_key_brings_what_is_not_there_yet() -> None:
    """`<<` fills in; what the mapping says itself stays."""
    node, problems = parse("base: &b {x: 1, y: 2}\nown: {<<: *b, y: 3}\n")
    assert problems == [] and node is not None
    assert plain(node)["own"] == {"x": 1, "y": 3}


def test_each_duplicate_key_is_reported_with_the_place_of_the_first() -> None:
    """The first one counts; every further one is a problem."""
    node, problems = parse("a: 1\nb: 2\na: 3\nb: 4\n")
    assert problems == [
        "a.yaml:3:1: duplicate key 'a'; it is at line 1 already",
        "a.yaml:4:1: duplicate key 'b'; it is at line 2 already",
    ]
    assert isinstance(node, Mapping) and plain(node) == {"a": 1, "b": 2}


BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 12)
)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is empty"),
        ("# only a comment\n", "the file is empty"),
        ("a: 1\n---\nb: 2\n", "a.yaml:2:1: a second document begins here"),
        ("a: [1, 2\n", "a.yaml:1:4: not YAML: the '[' is not closed: expected ',' or ']' before the end"),
        ("a: b: c\n", "a.yaml:1:5: not YAML: mapping values are not allowed"),
        ("a: \x01\n", r"a.yaml:1:4: character '\x01' is not allowed in YAML"),
        ("a: *nowhere\n", "a.yaml:1:4: the alias '*nowhere' names nothing above it"),
        ("a: &x [*x]\n", "a.yaml:1:8: the alias '*x' is inside the value that it names"),
        ("? [a, b]\n: 1\n", "a.yaml:1:3: a key must be text, not a list or a mapping"),
        ("a: &x b\n*x : 1\n", "a.yaml:2:1: a key must be text, not an alias"),
        ("a: !!python/object:os.system x\n", "a.yaml:1:4: the tag"),
        ("a: !!int many\n", "does not fit 'many'"),
        ("a: {<<: 5}\n", "a.yaml:1:9: '<<' takes a mapping"),
        ("[" * 500, f"nested more than {MOST_LEVELS} levels deep"),
        ("{a: " * 100_000, f"nested more than {MOST_LEVELS} levels deep"),
        (BOMB, f"more than {MAX_NODES} values"),
        ("[" + "a," * (MAX_NODES + 1) + "]", f"more than {MAX_NODES} values"),
    ],
)
def test_what_cannot_be_read_is_one_clean_problem(text: str, message: str) -> None:
    """No depth, no bomb and no broken syntax gives anything but a problem."""
    node, problems = parse(text)
    assert node is None and len(problems) == 1
    assert message in problems[0]


def test_aliases_do_not_dig_deeper_than_nesting_may() -> None:
    """Depth counts through aliases as well."""
    text = f"a: &a {'[' * 60}{']' * 60}\nb: {'[' * 50}*a{']' * 50}\n"
    assert f"nested more than {MOST_LEVELS} levels deep" in parse(text)[1][0]


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (b"a: 1\nb: \xff\n", "b.yaml:2:4: byte 0xff is not UTF-8 text"),
        ("a: ü\n".encode("latin-1"), "b.yaml:1:4: byte 0xfc is not UTF-8 text"),
        ("a: 1".encode("utf-16"), "b.yaml:1:1: byte 0xff is not UTF-8 text"),
        (b"a" * (17 << 20), "the file is longer than 16 MiB"),
    ],
)
def test_bytes_that_are_no_text_are_refused_at_their_place(tmp_path: Path, data: bytes, message: str) -> None:
    """The first bad byte is named."""
    file = tmp_path / "b.yaml"
    file.write_bytes(data)
    problems = Problems()
    assert parse_file(str(file), Environment({}), problems) is None
    assert message in str(problems.found[0])


@pytest.mark.parametrize("name", ["missing.yaml", ".", "nul\0.yaml"])
def test_a_file_that_cannot_be_opened_is_a_problem(tmp_path: Path, name: str) -> None:
    """A missing file, a directory and an impossible name are said to be unreadable."""
    problems = Problems()
    assert parse_file(f"{tmp_path}/{name}", Environment({}), problems) is None
    assert "the app cannot be read" in problems.found[0].message


def test_a_file_that_may_not_be_read_is_not_looked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its name is right; its permissions are the problem."""
    file = tmp_path / "a.yaml"
    file.write_text("name: a")
    file.chmod(0)
    tmp_path.chmod(0o755)
    monkeypatch.chdir(tmp_path)
    problems = Problems()
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        assert parse_file("a.yaml", Environment({}), problems) is None
    finally:
        os.seteuid(user)
    assert problems.found[0].message == (
        "the app cannot be read: Permission denied; check the permissions of the file and of the directories above it"
    )


def test_a_byte_order_mark_is_no_part_of_the_text(tmp_path: Path) -> None:
    """Editors on Windows write one."""
    file = tmp_path / "b.yaml"
    file.write_bytes(b"\xef\xbb\xbfa: 1\n")
    node = parse_file(str(file), Environment({}), Problems())
    assert node is not None and plain(node) == {"a": 1}


@given(st.text(max_size=200))
def test_any_text_gives_nodes_or_problems(text: str) -> None:
    """No text raises anything or gives neither."""
    node, problems = parse(text)
    assert (node is None) <= bool(problems)
