"""Errors say what, where and what to do, and arrive whole from other processes."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

import dagflow
import operators
from dagflow.errors import (
    MAX_TEXT,
    AppError,
    DagflowError,
    LocationError,
    OperatorError,
    Problem,
    RecordError,
    cut_text,
    text_of,
)
from dagflow.journal.log import SlotTakenError

for package in (dagflow, operators):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)

PROBLEMS = [Problem("app.yaml", 3, 5, "there is no port 'x'"), Problem("", 0, 0, "nothing to run")]


def classes_below(cls: type[DagflowError]) -> Iterator[type[DagflowError]]:
    """The class and all that derive from it."""
    yield cls
    for each in cls.__subclasses__():
        yield from classes_below(each)


def made(cls: type[DagflowError]) -> DagflowError:
    """An error of a class, with a value in every field."""
    if issubclass(cls, AppError):
        return cls(PROBLEMS, hint="fix it")
    if issubclass(cls, OperatorError):
        where = {"operator": "op", "window_id": 3, "partition": 1, "offset": 7, "trace": "a stack"}
        return cls("it raised", **where, hint="fix it")  # type: ignore[arg-type]  # fields of several types
    if issubclass(cls, RecordError):
        return cls("it is no record", url="a.txt", offset=7, length=2, hint="fix it")
    if issubclass(cls, SlotTakenError):
        return cls("it is taken", url="journal", record=None)
    if issubclass(cls, LocationError):
        return cls("it is gone", url="a.txt", hint="fix it")
    return cls("it is wrong", hint="fix it")


EVERY_CLASS = sorted(set(classes_below(DagflowError)), key=lambda cls: cls.__qualname__)


@pytest.mark.parametrize("cls", EVERY_CLASS)
def test_every_error_survives_pickling_with_all_its_fields(cls: type[DagflowError]) -> None:
    """One that was raised in an executor is shown by the driver."""
    error = made(cls)
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), vars(copy), copy.args, str(copy)) == (cls, vars(error), error.args, str(error))


@pytest.mark.parametrize("cls", EVERY_CLASS)
def test_every_error_ends_with_what_to_do_and_has_an_exit_code(cls: type[DagflowError]) -> None:
    """The hint stands in a line of its own, below what happened and where."""
    error = made(cls)
    assert not error.hint or str(error).splitlines()[-1] == f"    {error.hint}"
    assert error.exit_code == (2 if issubclass(cls, AppError) else 130 if "Stopped" in cls.__name__ else 1)


def test_an_error_names_the_place_as_far_as_it_is_known() -> None:
    """Window, operator and partition; file and offset; line and column."""
    assert str(made(OperatorError)).startswith("window 3, operator 'op' partition 1: it raised\n")
    assert str(OperatorError("it raised", operator="op")) == "operator 'op': it raised"
    assert str(made(RecordError)).startswith("a.txt offset 7 (2 bytes): it is no record\n")
    assert str(made(AppError)).startswith("app.yaml:3:5: there is no port 'x'\nnothing to run\n")


def test_a_long_message_keeps_its_head_and_its_tail() -> None:
    """A record of 50 MB in an exception's text reaches no journal and no terminal; the message says how much is cut."""
    error = DagflowError("head " + "x" * 50_000_000 + " tail", hint="y" * 10_000)
    assert len(error.message) < MAX_TEXT + 40
    assert error.message.startswith("head xxx") and error.message.endswith("xxx tail")
    assert " … 50 MB left out … " in error.message
    assert " … 6 kB left out … " in error.hint
    assert len(pickle.dumps(error)) < 4 * MAX_TEXT


@given(st.text(), st.integers(8, 40))
def test_only_what_is_too_long_is_cut(text: str, limit: int) -> None:
    """A text within the limit is as it was; of a longer one both ends are there."""
    cut = cut_text(text, limit)
    if len(text) <= limit:
        assert cut == text
    else:
        head, _, rest = cut.partition(" … ")
        assert text.startswith(head) and text.endswith(cut[-(limit // 4) :])
        assert "left out" in rest


def test_a_text_that_cannot_be_made_is_no_second_failure() -> None:
    """The classes of an author's exceptions may have defects of their own."""

    class Silent(Exception):
        def __str__(self) -> str:
            raise LookupError("no text")

    assert text_of(Silent()) == "its text cannot be shown: __str__ raised LookupError"


def test_a_record_that_is_in_no_file_has_no_place() -> None:
    """An operator has made it, or nothing is known of the file."""
    assert str(RecordError("it is no record", url="", offset=-1, length=-1)) == "it is no record"


def test_an_error_names_the_operators_of_the_app_alone() -> None:
    """Parts that dagflow has made of them have names that the app does not have."""
    error = DagflowError("operator 'q#top' gave 'a#b' to operator 'w'", hint="let operator 'q#top' wait")
    assert str(error) == "operator 'q' gave 'a#b' to operator 'w'\n    let operator 'q' wait"
