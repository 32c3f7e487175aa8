"""Properties: what pydantic finds is said in our words, at the place of the very value."""

from __future__ import annotations

from pathlib import Path

import pytest

from operators.sink.record_writer import RecordWriter
from tests.spec.apps import changed, check, problems_of


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        (
            "limit: 3",
            "limt: 3",
            "8:18: operator 'reader' (Reader) has no property 'limt'; did you mean 'limit'?\n"
            "    Reader takes: format, limit",
        ),
        (
            "limit: 3",
            "limit: many",
            "8:25: operator 'reader' (Reader), property 'limit': expected a whole number, got 'many'",
        ),
        (
            "limit: 3",
            "limit: [3]",
            "8:25: operator 'reader' (Reader), property 'limit': expected a whole number, got a list",
        ),
        ("limit: 3", "limit: true", "property 'limit': a number is expected, not true or false"),
        ("limit: 3", "limit: 1.5", "property 'limit': expected a whole number, got the number 1.5"),
        ("limit: 3", "limit: ~", "property 'limit': expected a whole number, got nothing"),
        (
            "size: 1MiB",
            "size: 5 parsecs",
            "5:39: operator 'source' (PieceInput), property 'size': '5 parsecs' is not a size",
        ),
        (
            "files: [data]",
            "files: [data, 5]",
            "property 'files[1]': expected text, got the number 5; in quotes it is text: '5'",
        ),
        ("files: [data]", "files: []", "property 'files': expected at least 1 of them, got a list"),
        (
            "ratios: [0.5, 1]",
            "ratios: [0.5, x]",
            "13:21: operator 'step' (Step), property 'ratios[1]': expected a number",
        ),
        (
            'match: {prefix: "."}',
            'match: {prefx: "."}',
            "12:15: operator 'step' (Step), property 'match' does not take 'prefx'; did you mean 'prefix'?\n"
            "    match takes: prefix, suffix",
        ),
        (
            'match: {prefix: "."}',
            "match: {prefix: [1]}",
            "12:23: operator 'step' (Step), property 'match.prefix': expected text",
        ),
        ('match: {prefix: "."}', "match: 5", "12:14: operator 'step' (Step), property 'match': expected a mapping"),
        (
            'match: {prefix: "."}',
            "match: {prefix: a, suffix: b}",
            "11:5: operator 'step' (Step): match: give prefix or suffix, not both; got 'a'",
        ),
        ("{path: out}", "{}", "17:5: operator 'sink' (Sink) needs the property 'path', which is missing"),
        (
            "    properties: {path: out}\n",
            "",
            "15:3: operator 'sink' (Sink) needs the property 'path', which is missing",
        ),
        ("format: {prefix: x}", "format: 5", "property 'format': expected text or a mapping, got the number 5"),
        (
            "format: {prefix: x}",
            "format: {prefx: x}",
            "8:37: operator 'reader' (Reader), property 'format' does not take 'prefx'; did you mean 'prefix'?",
        ),
    ],
)
def test_a_wrong_property_is_named_at_its_value(tmp_path: Path, old: str, new: str, expected: str) -> None:
    """One mistake is one problem: what was got, what was expected, the nearest name."""
    problems = problems_of(tmp_path, changed(old, new))
    assert len(problems) == 1, problems
    assert expected in problems[0]


def test_every_wrong_property_of_an_operator_is_reported(tmp_path: Path) -> None:
    """Checking goes on after the first mistake."""
    problems = problems_of(tmp_path, changed("limit: 3, format: {prefix: x}", "limit: x, format: [], more: 1, much: 2"))
    assert [problem.partition(": ")[0] for problem in problems] == ["8:25", "8:36", "8:40", "8:49"], problems


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    count: Missing = 1", "declares properties wrongly: NameError: name 'Missing' is not defined"),
        ("    count: int = 'x'", "property 'count': its default is refused"),
        ("    def check_properties(self):\n        raise KeyError('boom')", "refused with KeyError: 'boom'"),
        ("    def __init__(self):\n        pass\n    count: int = 1", ""),
        ("    def __init__(self, must):\n        pass", "refused with TypeError"),
    ],
)
def test_an_authors_own_mistakes_are_problems_too(tmp_path: Path, body: str, expected: str) -> None:
    """Whatever a user's class raises when it is looked at becomes a problem of the app."""
    module = tmp_path.name
    head = "from __future__ import annotations\nfrom dagflow import InputOperator\n\n\nclass Mine(InputOperator):\n"
    (tmp_path / f"{module}.py").write_text(head + body + "\n")
    problems = problems_of(tmp_path, f"name: a\noperators:\n  mine: {{class: {module}.Mine}}\n")
    assert len(problems) == bool(expected), problems
    assert not expected or expected in problems[0]


OWN = """\
from typing import Annotated, Any

from pydantic import Field

from dagflow import InputOperator, OutputPort


class Base(InputOperator):
    count: int = 1
    size: Annotated[int, Field(ge=10)] = 3
    either: str | int = []


class Mine(Base):
    count = None
    prefix = 'a'
    nothing = None
    limit = Field(3)
    output = OutputPort(object)

    def make(self) -> None:
        pass
"""
"""A module with mistakes in its defaults, and attributes that are no properties."""


def problems_of_own(folder: Path, given: str, module: str = OWN) -> list[str]:
    """The problems of an app whose operator is of the class Mine of a module beside it, with their files."""
    (folder / f"{folder.name}.py").write_text(module)
    (folder / "app.yaml").write_text(
        f"name: a\noperators:\n  mine: {{class: {folder.name}.Mine, properties: {given}}}\n"
    )
    return [str(problem) for problem in check(folder / "app.yaml", environ={})]


def test_a_default_that_is_refused_is_reported_where_it_stands(tmp_path: Path) -> None:
    """In the code, also that of a base class, with what was expected and what the default is."""
    refused, file = "operator 'mine' (Mine), property '{}': its default is refused: ", tmp_path / f"{tmp_path.name}.py"
    assert problems_of_own(tmp_path, "{}") == [
        f"{file}:10: {refused.format('size')}expected at least 10, got 3",
        f"{file}:11: {refused.format('either')}expected text or a whole number, got []",
        f"{file}:15: {refused.format('count')}expected a whole number, got None",
    ]


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("prefix", ", only an attribute without an annotation; declare it as `prefix: str = 'a'`"),
        ("nothing", ", only an attribute without an annotation; declare it as `nothing: str | None = None`"),
        ("limit", ", only an attribute without an annotation; declare it as `limit: TYPE = ...`"),
        ("prefx", "\n    Mine takes: count"),
        ("output", "\n    Mine takes: count"),
        ("output_ports", "\n    Mine takes: count"),
        ("state_version", "\n    Mine takes: count"),
        ("make", "\n    Mine takes: count"),
        ("given_properties", "\n    Mine takes: count"),
    ],
)
def test_an_attribute_without_an_annotation_is_reported(tmp_path: Path, name: str, expected: str) -> None:
    """It looks like a property; ports, methods and what dagflow declares do not."""
    module = OWN.replace("count = None", "count = 2").replace("= 3\n", "= 30\n").replace("= []", "= ''")
    (problem, *_) = problems_of_own(tmp_path, f"{{{name}: b}}", module)
    assert f": operator 'mine' (Mine) has no property '{name}'{expected}" in problem


@pytest.mark.parametrize("given", ["", "${NOWHERE:-}"])
@pytest.mark.parametrize(
    ("operator", "name", "shown"),
    [
        ("FileSplitterInput", "files", "files"),
        ("FileSplitterInput", "files", "files[1]"),
        ("RecordWriter", "path", "path"),
    ],
)
def test_an_empty_path_is_refused(tmp_path: Path, operator: str, name: str, shown: str, given: str) -> None:
    """It would be the working directory; one that comes from an empty variable was not meant so."""
    value = f'[a, "{given}"]' if "[" in shown else f'"{given}"'
    text = f"name: x\noperators:\n  x: {{class: {operator}, properties: {{{name}: {value}}}}}\n"
    expected = f"operator 'x' ({operator}), property '{shown}': expected text of length 1 or more, got"
    assert any(expected in found for found in problems_of(tmp_path, text))


@pytest.mark.parametrize(
    ("operator", "properties", "name"),
    [
        ("FileSplitterInput", r'{files: "data\0"}', "files"),
        ("FileSplitterInput", r'{files: [data, "da\0ta"]}', "files[1]"),
        ("FileSplitterInput", r'{files: data, done_marker: "{name}\0"}', "done_marker"),
        ("RecordWriter", r'{path: "out\0"}', "path"),
        ("MetadataWriter", r'{path: "out\0"}', "path"),
        ("FileMerger", r'{path: "out\0"}', "path"),
        ("SourceCleaner", r'{action: archive, archive: "old\0"}', "archive"),
        ("SourceCleaner", r'{action: remove, below: "data\0"}', "below"),
    ],
)
def test_a_path_with_a_nul_is_refused_where_it_stands(
    tmp_path: Path, operator: str, properties: str, name: str
) -> None:
    """No file system takes one, and a run would fail in the middle."""
    line = f"  x: {{class: {operator}, properties: {properties}}}"
    found = problems_of(tmp_path, f"name: x\noperators:\n{line}\n")
    column = line.index(next(part for part in line.split('"') if r"\0" in part))
    assert (
        f"3:{column}: operator 'x' ({operator}), property '{name}': "
        "it has a NUL character, which no path and no URL has" in found
    )


@pytest.mark.parametrize(
    ("operator", "properties", "name"),
    [
        ("RecordWriter", '{path: "out/{shop}"}', "path"),
        ("RecordWriter", '{path: "out/{}"}', "path"),
        ("MetadataWriter", '{path: "{shop}/x"}', "path"),
        ("FileMerger", '{path: "{{a}}/{b}"}', "path"),
        ("SourceCleaner", '{action: archive, archive: "old/{shop}"}', "archive"),
    ],
)
def test_a_placeholder_in_a_path_that_is_written_to_is_refused(
    tmp_path: Path, operator: str, properties: str, name: str
) -> None:
    """It would become a directory of that name."""
    found = problems_of(tmp_path, f"name: x\noperators:\n  x: {{class: {operator}, properties: {properties}}}\n")
    expected = f"operator 'x' ({operator}), property '{name}': there is no placeholder '{{"
    assert any(expected in problem for problem in found)


def test_an_unknown_placeholder_is_refused_with_the_nearest_one(tmp_path: Path) -> None:
    """A marker has one, which is the name of the file that it marks."""
    text = 'name: x\noperators:\n  x: {class: FileSplitterInput, properties: {files: data, done_marker: "{nam}.ok"}}\n'
    expected = "property 'done_marker': there is no placeholder '{nam}'; did you mean '{name}'?"
    assert any(expected in problem for problem in problems_of(tmp_path, text))


def test_doubled_braces_in_a_path_are_braces() -> None:
    """What the error advises gives a directory of that very name."""
    assert RecordWriter(path="out/{{shop}}").path == "out/{shop}"


@pytest.mark.parametrize(("passed_on", "is_refused"), [("**properties", False), ("", True)])
def test_a_constructor_that_keeps_properties_is_refused(tmp_path: Path, passed_on: str, is_refused: bool) -> None:
    """The operator would work with its defaults, whatever the app gives."""
    module = tmp_path.name
    (tmp_path / f"{module}.py").write_text(
        "from dagflow import InputOperator\n\n\nclass Mine(InputOperator):\n    count: int = 1\n\n"
        f"    def __init__(self, **properties):\n        super().__init__({passed_on})\n"
    )
    problems = problems_of(
        tmp_path, f"name: a\noperators:\n  mine: {{class: {module}.Mine, properties: {{count: 2}}}}\n"
    )
    expected = "operator 'mine' (Mine): its __init__() sets no properties"
    assert any(expected in problem for problem in problems) == is_refused, problems
