"""Variables are replaced, and their values are never shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.plan.load import load_app
from dagflow.spec.problems import Place, Problems
from dagflow.spec.yaml_tree import Environment, hide_braces, show_braces
from tests.spec.apps import SAMPLES, VALID, changed, problems_of


def expand(text: str, **variables: str) -> tuple[str | None, list[str]]:
    problems = Problems()
    return Environment(variables).expand(text, Place("a.yaml", 1, 1), problems), [p.message for p in problems.found]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("no variable", "no variable"),
        ("$A stays", "$A stays"),
        ("${A}", "1"),
        ("a-${A}-${B}", "a-1-2"),
        ("${C:-3}", "3"),
        ("${EMPTY:-4}", "4"),
        ("${EMPTY:-}", ""),
        ("${C:-}", ""),
        ("$${A}", "${A}"),
        ("${NESTED}", "${A}"),
    ],
)
def test_variables_are_replaced_once(text: str, expected: str) -> None:
    """A value is not looked into again; a default stands for what is unset or empty."""
    assert expand(text, A="1", B="2", EMPTY="", NESTED="${A}") == (expected, [])


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("${HOM}", "the environment has no variable HOM; did you mean 'HOME'?"),
        ("${QQ}", "the environment has no variable QQ; set it, or write ${NAME:-default}"),
        ("${}", "'${' begins a variable"),
        ("${A", "'${' begins a variable"),
        ("${A:-${HOME}}", "'${' begins a variable"),
        ("${BYTES}", "the value of ${BYTES} is not UTF-8 text"),
    ],
)
def test_a_reference_that_leads_nowhere_is_a_problem(text: str, message: str) -> None:
    """A wrong reference is not replaced by an empty text."""
    value, problems = expand(text, HOME="/root", BYTES="\udcff")
    assert value is None and message in problems[0]


def test_variables_may_stand_unquoted_inside_of_braces(tmp_path: Path) -> None:
    """`{size: ${SIZE:-1MiB}}` is read as people mean it, with the places of the file."""
    text = changed("size: 1MiB", "size: ${SIZE:-2MiB}")
    (tmp_path / "app.yaml").write_text(text)
    plan = load_app(tmp_path / "app.yaml", environ={})
    assert plan.operators["source"].operator.size == 2 << 20  # type: ignore[attr-defined]  # a property of the sample
    plan = load_app(tmp_path / "app.yaml", environ={"SIZE": "3MiB"})
    assert plan.operators["source"].operator.size == 3 << 20  # type: ignore[attr-defined]  # a property of the sample
    bad = changed("size: 1MiB", "size: ${SIZE}, bogus: 1")
    assert any(
        problem.startswith("5:48: operator 'source' (PieceInput) has no") for problem in problems_of(tmp_path, bad)
    )


SECRET = "hunter2-Tr0ub4dor"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("limit: 3", "limit: ${SECRET}"),
        ("size: 1MiB", "size: '${SECRET}'"),
        ("size: 1MiB", "size: prefix-${SECRET}"),
        ("ratios: [0.5, 1]", "ratios: [0.5, '${SECRET}']"),
        ("ratios: [0.5, 1]", "ratios: ${SECRET}"),
        ('match: {prefix: "."}', "match: {prefix: '${SECRET}', suffix: x}"),
        ('match: {prefix: "."}', "match: ${SECRET}"),
        ("name: sample", "name: ${SECRET}"),
        (f"class: {SAMPLES}.Reader", "class: ${SECRET}"),
        (f"class: {SAMPLES}.Reader", "class: ${SECRET}.${SECRET}"),
        ("from: source.pieces", "from: ${SECRET}"),
        ("from: source.pieces", "from: ${SECRET}.pieces"),
        ("from: source.pieces", "from: source.${SECRET}"),
        ("to: reader.pieces", "to: [reader.${SECRET}]"),
        ("name: sample", "name: sample\nattributes: ${SECRET}"),
        ("name: sample", "name: sample\nattributes: {window_millis: ${SECRET}}"),
        ("name: sample", "name: sample\nstreams: ${SECRET}"),
        ("properties: {path: out}\n    partition: parallel", "properties: {path: out}\n    partition: ${SECRET}"),
        ("properties: {path: out}", "properties: ${SECRET}"),
    ],
)
def test_a_value_from_the_environment_is_in_no_problem(tmp_path: Path, old: str, new: str) -> None:
    """Wherever a bad value stands, its reference is shown, and no four characters of it."""
    problems = problems_of(tmp_path, changed(old, new), environ={"SECRET": SECRET})
    assert problems
    text = "\n".join(problems)
    assert not any(SECRET[start : start + 4] in text for start in range(len(SECRET) - 3)), text


def test_a_value_from_the_environment_is_in_no_repr(tmp_path: Path) -> None:
    """Neither the app nor its plan shows a value when it is printed."""
    text = changed("path: out", "path: ${SECRET}").replace(
        "name: sample",
        "name: sample\nattributes: {checkpoint: '${SECRET}', master: '${SECRET}', spark: {a: '${SECRET}'}}",
    )
    (tmp_path / "app.yaml").write_text(text)
    plan = load_app(tmp_path / "app.yaml", environ={"SECRET": SECRET})
    assert plan.attributes.checkpoint == SECRET
    assert SECRET not in repr(plan) and SECRET not in repr(plan.spec)
    assert plan.spec is not None and plan.spec.redact(f"cannot open {SECRET}") == "cannot open ${SECRET}"


@given(st.text())
def test_hidden_braces_come_back_and_move_nothing(text: str) -> None:
    """Hiding keeps the length; showing restores the text."""
    hidden = hide_braces(text)
    assert len(hidden) == len(text)
    if "\ue0f1" not in text and "\ue0f2" not in text:
        assert show_braces(hidden) == text


def test_the_valid_app_is_valid(tmp_path: Path) -> None:
    """The ground that the other tests stand on."""
    assert problems_of(tmp_path, VALID) == []
