"""What kinds of functions an operator's methods may be, and what a class must declare."""

from __future__ import annotations

import gc
import pickle
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from dagflow import InputPort, Operator, OutputPort, Unified
from dagflow.api.columns.column_typing import ColumnTyped
from dagflow.api.operator import defines
from dagflow.spec.class_lookup import OPERATOR, UnknownClassError, find_class


class Base(Operator):
    """Passes on what arrives."""

    input = InputPort()
    output = OutputPort()

    @input.each
    def each(self, record: bytes) -> Any:
        """Emit it."""
        self.output.emit(record)


async def asynchronous(self: Operator, *_: object) -> None:
    """Stands for a method."""


async def asynchronous_generator(self: Operator, *_: object) -> AsyncIterator[None]:
    """Stands for a method."""
    yield


def paused(self: Operator, *_: object) -> Iterator[None]:
    """Stands for a method."""
    yield


@pytest.mark.parametrize("method", [asynchronous, asynchronous_generator])
@pytest.mark.parametrize("name", ["each", "setup", "end_window", "teardown", "snapshot", "emit_tuples"])
def test_an_asynchronous_method_is_refused_when_its_class_is_defined(name: str, method: object) -> None:
    """It would never be awaited, and what it emits would be lost silently; also where it overrides a handler."""
    with pytest.raises(TypeError, match=rf"Mine\.{name}\(\) is asynchronous.* write a plain def.*asyncio\.run\(\)"):
        type("Mine", (Base,), {name: method})


@pytest.mark.parametrize("name", ["setup", "begin_window", "end_window", "teardown", "committed"])
def test_a_generator_that_is_no_handler_is_refused(name: str) -> None:
    """A generator that is no handler would never be iterated."""
    with pytest.raises(TypeError, match=rf"Mine\.{name}\(\) is a generator.* without yield"):
        type("Mine", (Base,), {name: paused})


def test_a_handler_may_be_a_generator() -> None:
    """It pauses between pieces of its work."""
    assert type("Mine", (Base,), {"each": paused}).__name__ == "Mine"


def test_the_file_and_the_line_of_such_a_class_are_named(tmp_path: Path) -> None:
    """Before anything runs."""
    lines = ["from dagflow import Operator", "", "class Late(Operator):", "    async def setup(self, context): pass"]
    (tmp_path / "own_late.py").write_text("\n".join(lines))
    with pytest.raises(UnknownClassError, match=r"own_late\.py:3: TypeError: Late\.setup\(\) is asynchronous"):
        find_class("own_late.Late", [str(tmp_path)], OPERATOR)


def test_a_capability_that_is_not_declared_is_refused() -> None:
    """The framework would never call its methods."""
    with pytest.raises(TypeError, match=r"Mine has unifier\(\) and does not declare it; derive it from .*\.Unified as"):
        type("Mine", (Base,), {"unifier": lambda self, port: None})
    assert type("Mine", (Base, Unified), {"unifier": lambda self, port: None})().unifier("output") is None


@pytest.mark.parametrize("name", ["columns_at", "check_arriving"])
def test_one_optional_method_of_a_capability_declares_it(name: str) -> None:
    """A class with any of them derives from the capability, because none of them alone is one."""
    methods = {name: lambda self, *arguments: None}
    with pytest.raises(TypeError, match=rf"Mine has {name}\(\) and does not declare it; derive it .*\.ColumnTyped as"):
        type("Mine", (Base,), methods)
    assert issubclass(type("Mine", (Base, ColumnTyped), methods), ColumnTyped)


def test_an_operator_defines_what_its_class_or_a_base_has() -> None:
    """The versions in dagflow.api, which do nothing, and missing methods are not its own."""
    checked = type("Checked", (Base,), {"check_limits": lambda self, totals: None})
    assert defines(checked(), "check_limits")
    assert defines(type("Derived", (checked,), {})(), "check_limits")
    assert not defines(Base(), "check_limits")
    assert not defines(Base(), "estimate")


@pytest.mark.parametrize("name", ["input", "output"])
def test_a_property_with_the_name_of_a_port_is_refused(name: str) -> None:
    """The instance has the port there, and what the app gives would be lost."""
    with pytest.raises(TypeError, match=rf"Mine\.{name} is a property, and a base has a port of that name"):
        type("Mine", (Base,), {"__annotations__": {name: int}, name: 5})
    port = InputPort() if name == "input" else OutputPort()
    assert type("Mine", (Base,), {"__annotations__": {name: type(port)}, name: port})


class DoublingDescriptor:
    """A descriptor that keeps twice the value in the instance's dictionary, under its own name."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: object, owner: type) -> Any:
        """The value."""
        return self if instance is None else vars(instance)[self.name]

    def __set__(self, instance: object, value: int) -> None:
        """Keep the value."""
        vars(instance)[self.name] = 2 * value


class WithDescriptor(Base):
    """Has an attribute of such a kind."""

    count = DoublingDescriptor()


def test_an_operator_arrives_in_a_task_with_its_attributes_at_hand() -> None:
    """A per-record method reads them for each record, which takes longer where an instance has a dictionary."""
    sent = pickle.dumps(Base())
    for operator in (Base(), pickle.loads(sent)):
        assert any(each is operator.output for each in gc.get_referents(operator)), "not in a dictionary"


def test_a_descriptor_does_not_take_its_value_again_in_a_task() -> None:
    """What it keeps arrives as it is."""
    operator = WithDescriptor()
    operator.count = 2
    assert pickle.loads(pickle.dumps(operator)).count == 4
