"""The asserts of contract suites show an author what they compared."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import dagflow.testing
import operators.testing

SUITES = [
    f"{package.__name__}.{path.stem}"
    for package in (dagflow.testing, operators.testing)
    for path in sorted(Path(str(package.__file__)).parent.glob("*_contract.py"))
]


@pytest.mark.parametrize("suite", SUITES)
def test_the_asserts_of_every_suite_are_rewritten(suite: str) -> None:
    """Each suite is named before it is imported; pytest leaves a mark in what it rewrites."""
    assert "@pytest_ar" in vars(importlib.import_module(suite))


def test_there_are_suites() -> None:
    """None is missed because its file has another name."""
    assert len(SUITES) == 7
