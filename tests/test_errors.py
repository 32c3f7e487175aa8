"""Errors say what, where and what to do, and arrive whole from other processes."""

from __future__ import annotations

import importlib
import pickle
import pkgutil
from collections.abc import Iterator

import pytest

import dagflow
import operators
from dagflow.errors import AppError, DagflowError, LocationError, OperatorError, Problem, RecordError
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
        where = {"operator": "op", "window_id": 3, "partition": 1, "url": "a.txt", "offset": 7, "trace": "a stack"}
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
    assert str(made(OperatorError)).startswith("window 3, operator 'op' partition 1: it raised at a.txt offset 7\n")
    assert str(OperatorError("it raised", operator="op")) == "operator 'op': it raised"
    assert str(made(RecordError)).startswith("a.txt offset 7 (2 bytes): it is no record\n")
    assert str(made(AppError)).startswith("app.yaml:3:5: there is no port 'x'\nnothing to run\n")
