"""Operators that were given to an app, and that it makes anew."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from dagflow import App, InputPort, Operator, OutputPort
from dagflow.api.partitioning import BacklogStats, PartitionPolicy
from operators.reader.block_reader import BlockReader
from operators.sink.record_writer import RecordWriter
from operators.splitter.splitter import FileSplitterInput


class Shorten(Operator):
    """Emits the first bytes of each record; how many, its constructor keeps for itself."""

    input = InputPort()
    output = OutputPort()

    def __init__(self, length: int = 10, **properties: Any) -> None:
        super().__init__(**properties)
        self.length = length

    @input.each
    def take(self, record: bytes) -> None:
        """Emit the beginning."""
        self.output.emit(record[: self.length])


class WithoutSuper(Shorten):
    """Calls no constructor of a base."""

    def __init__(self, length: int = 10) -> None:
        self.length = length


class DeclaresWithoutPassing(Shorten):
    """Declares the property, and does not hand it on."""

    length: int = 10

    def __init__(self, **properties: Any) -> None:
        super().__init__()
        self.length = properties["length"]


class PassesByPosition(Shorten):
    """Takes the property by position, and hands it on."""

    length: int = 10

    def __init__(self, length: int = 10) -> None:
        Operator.__init__(self, length=length)


class InKilobytes(Shorten):
    """Makes a property of an argument; another one is for no property, and changes nothing as it is by default."""

    length: int = 10

    def __init__(self, length: int = 10, kb: int | None = None, verbose: bool = False) -> None:
        Operator.__init__(self, length=length if kb is None else kb * 1024)
        self.verbose = verbose


class PassesWithoutNames(Shorten):
    """Takes what it hands on without names."""

    length: int = 10

    def __init__(self, *arguments: int, **properties: Any) -> None:
        Operator.__init__(self, **({"length": arguments[0]} if arguments[:1] else properties))
        self.rest = arguments[1:]


@pytest.mark.parametrize(
    ("made", "advice"),
    [
        (lambda: Shorten(length=3), "it is no property, .*: declare `length: int = 10` in the class body"),
        (lambda: Shorten(3), "it is no property, .*: declare `length: int = 10` in the class body"),
        (lambda: WithoutSuper(length=3), "it is no property, .*: declare `length: int = 10` in the class body"),
        (
            lambda: DeclaresWithoutPassing(length=3),
            r"does not hand it on, .* let it call super\(\).__init__\(length=length, …\)",
        ),
    ],
)
def test_arguments_that_are_no_properties_are_reported(made: Callable[[], Operator], advice: str) -> None:
    """The app's own instances would be made without them, and shorten to another length."""
    app = App("own")
    reader = app.add(FileSplitterInput(files="in")).to(BlockReader(format="lines"))
    reader.to(made(), name="s").to(RecordWriter(path="out"))
    (problem,) = map(str, app.validate())
    assert re.match(
        rf".*test_app_given_operators\.py:\d+: operator 's': \w+\.__init__\(\) was given 'length' and {advice}", problem
    )


@pytest.mark.parametrize(
    ("made", "message"),
    [
        (
            lambda: InKilobytes(kb=2, verbose=True),
            r"'verbose' and .* declare `verbose: bool = False` in the class body",
        ),
        (
            lambda: PassesWithoutNames(2048, 3),
            "'arguments' and these are no properties, .* declare a property for each of them",
        ),
    ],
)
def test_an_argument_counts_by_what_becomes_of_it(made: Callable[[], Any], message: str) -> None:
    """One that becomes another property is not lost, whatever its name; the advice has the argument's own type."""
    for operator, is_whole in ((InKilobytes(kb=2), True), (PassesWithoutNames(2048), True), (made(), False)):
        app = App("own")
        reader = app.add(FileSplitterInput(files="in")).to(BlockReader(format="lines"))
        reader.to(operator, name="s").to(RecordWriter(path="out"))
        if is_whole:
            assert app.validate() == []
            planned: Any = app.logical().operators["s"].operator
            assert planned.length == 2048
        else:
            assert any(re.search(message, str(problem)) for problem in app.validate())


def test_arguments_that_are_handed_on_are_properties() -> None:
    """Also one that is given by position; an operator's pickle holds nothing of how it was made."""
    app = App("own")
    reader = app.add(FileSplitterInput(files="in")).to(BlockReader(format="lines"))
    reader.to(PassesByPosition(3), name="s").to(RecordWriter(path="out"))
    made: Any = app.logical().operators["s"].operator
    assert made.length == 3
    assert set(made.__getstate__()) == {"_given_properties", "length"}


class CountFromConstructor(PartitionPolicy):
    """Has as many partitions as its constructor kept."""

    extra: int = 0

    def __init__(self, count: int = 1, **properties: Any) -> None:
        super().__init__(**properties)
        self.count = count

    def define_partitions(self, stats: BacklogStats) -> int:
        """The number of the constructor, and extra ones."""
        return self.count + self.extra


def test_arguments_of_a_policy_that_are_lost_are_reported() -> None:
    """The run's own policy would decide for another number."""
    app = App("own")
    changed = CountFromConstructor(extra=1)
    changed.extra = 2
    files = app.add(FileSplitterInput(files="in"))
    for policy in (CountFromConstructor(3), changed, CountFromConstructor(extra=1), CountFromConstructor(1)):
        files.to(BlockReader(format="lines"), partitioner=policy).to(RecordWriter(path="out"))
    lost, set_later = map(str, app.validate())
    assert re.search(
        r"py:\d+: partitioner of operator 'block_reader': CountFromConstructor.__init__\(\) was given 'count' "
        "and it is no property, and .* declare `count: int = 1` in the class body",
        lost,
    )
    message = "partitioner of operator 'block_reader_2': its property 'extra' was set after"
    assert message in set_later
