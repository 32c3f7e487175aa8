"""The table of cases is complete, no case of it is dead, and the docs have the same."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

import pytest

from operators.splitter.changes.renames.cases import (
    NAME_CASES,
    PAIR_CASES,
    Continuing,
    RotationCase,
    decide,
)
from operators.splitter.changes.renames.pair_facts import OwnName, Pair

VALUES = {"same_bytes": (True, False, None), "original": ("kept", "other", "gone")}

TABLES = pytest.mark.parametrize(("cases", "kind"), [(PAIR_CASES, Pair), (NAME_CASES, OwnName)], ids=["pair", "name"])


def names_in(cases: Sequence[RotationCase]) -> list[str]:
    """The facts that a table asks for."""
    return sorted({name for case in cases for name in case.facts})


@TABLES
def test_each_combination_has_an_answer_and_each_case_decides_one(cases: Sequence[RotationCase], kind: type) -> None:
    """No combination is left out, and no case is hidden behind those above it."""
    names, deciding = names_in(cases), set()
    for values in itertools.product(*(VALUES.get(name, (True, False)) for name in names)):
        facts = SimpleNamespace(**dict(zip(names, values, strict=True)))
        first = next(index for index, case in enumerate(cases) if case.fits(facts))
        assert decide(cases, facts) is cases[first].answer
        deciding.add(first)
    assert deciding == set(range(len(cases)))


@TABLES
def test_each_fact_is_one_of_a_file(cases: Sequence[RotationCase], kind: type) -> None:
    """A table asks for facts that are found out about real files, and says what they mean."""
    for name in names_in(cases):
        assert name == "same_inode" or getattr(kind, name).__doc__ or getattr(kind, name).func.__doc__


@pytest.mark.parametrize(
    ("facts", "answer"),
    [
        ({"same_inode": True, "same_bytes": True}, Continuing.CONTINUES),
        ({"same_inode": True, "same_bytes": False}, Continuing.OTHER),
        ({"same_bytes": True, "is_compressed": True, "original": "gone"}, Continuing.CONTINUES),
        ({"same_bytes": True, "original": "other"}, Continuing.CONTINUES),
        ({"same_bytes": True, "original": "kept"}, Continuing.COPY),
        ({"same_bytes": True, "original": "gone"}, Continuing.OTHER),
        ({"same_bytes": True, "original": "gone", "same_time": True}, Continuing.CONTINUES),
        ({"same_bytes": True, "original": "other", "only_number_differs": True}, Continuing.OTHER),
        ({"same_bytes": True, "is_compressed": True, "original": "gone", "is_steady": False}, Continuing.AGAIN),
        ({"same_bytes": True, "is_compressed": True, "original": "gone", "in_flight": True}, Continuing.LATER),
    ],
    ids=str,
)
def test_what_a_rotation_leaves_is_known(facts: dict[str, object], answer: Continuing) -> None:
    """A rename, a compression, a truncation of the original, a copy beside it, and a spool of alike files."""
    usual = {name: False for name in names_in(PAIR_CASES)} | {"is_steady": True, "original": "other"}
    assert decide(PAIR_CASES, SimpleNamespace(**usual | facts)) is answer


def as_markdown(cases: Sequence[RotationCase]) -> str:
    """The table as docs/rotation.md has it."""
    rows = [f"| {_facts_text(case)} | {case.answer.value} | {case.because} |" for case in cases]
    return "\n".join(["| facts | the file | because |", "|---|---|---|", *rows])


def _facts_text(case: RotationCase) -> str:
    return ", ".join(f"`{name}`: {_value_text(value)}" for name, value in case.facts.items()) or "any other"


def _value_text(value: object) -> str:
    words = {"True": "yes", "False": "no", "None": "unknown"}
    return words.get(str(value), str(value))


@TABLES
def test_the_docs_have_the_table(cases: Sequence[RotationCase], kind: type) -> None:
    """Row by row; docs/contributing.md says how to print it."""
    assert as_markdown(cases) in Path("docs/rotation.md").read_text()
