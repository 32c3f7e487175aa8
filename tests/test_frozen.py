"""Classes of values that are cheap to define."""

from __future__ import annotations

import pickle
from dataclasses import asdict, dataclass, field, fields, is_dataclass, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pytest

import dagflow.frozen
from dagflow.frozen import frozen, mutable


@frozen
class Corner:
    """A value with all that fields can have."""

    name: str
    lines: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list, compare=False)
    secret: str = field(default="", repr=False)


@frozen
class Spot(Corner):
    """A value with a field more."""

    column: int = 0


@dataclass(frozen=True, slots=True)
class _Usual:
    name: str
    lines: tuple[int, ...] = ()
    notes: list[str] = field(default_factory=list, compare=False)
    secret: str = field(default="", repr=False)


@frozen
class Empty:
    """A value without fields."""


@frozen
class Named:
    """A value that says itself what it is equal to, and how it is shown."""

    name: str

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Named) and self.name.lower() == other.name.lower()

    def __hash__(self) -> int:
        return hash(self.name.lower())

    def __repr__(self) -> str:
        return self.name


@mutable
class Count:
    """One that changes."""

    number: int


def test_a_value_is_shown_as_a_frozen_dataclass_is() -> None:
    """Fields that are not to be shown are not."""
    usual = _Usual("a", (1,), ["n"], "s")
    assert repr(Corner("a", (1,), ["n"], "s")) == repr(usual).replace("_Usual", "Corner")
    assert repr(Spot("a", column=2)) == "Spot(name='a', lines=(), notes=[], column=2)"


def test_values_are_equal_if_their_class_and_compared_fields_are() -> None:
    """Equal values have the same hash; a value of a derived class is another one."""
    assert Corner("a", notes=["x"]) == Corner("a", notes=["y"])
    assert len({Corner("a", notes=["x"]), Corner("a", notes=["y"]), Corner("a", secret="s"), Spot("a")}) == 3
    assert Corner("a") != Spot("a")
    assert Spot("a") != Corner("a")
    assert Corner("a").__eq__(1) is NotImplemented
    assert Empty() == Empty()
    assert len({Empty(), Empty()}) == 1


def test_values_are_pickled_and_replaced() -> None:
    """Tasks get values as pickles."""
    spot = Spot("a", (1,), ["n"], "s", 3)
    assert pickle.loads(pickle.dumps(spot)) == spot
    assert b"lines" not in pickle.dumps(spot)
    assert replace(spot, column=4) == Spot("a", (1,), ["n"], "s", 4)


def test_methods_that_the_class_has_itself_stay() -> None:
    """Another comparison stays, with its hash."""
    assert len({Named("a"), Named("A")}) == 1
    assert repr(Named("a")) == "a"


def test_a_value_takes_no_other_attributes() -> None:
    """Its attributes are slots, so that a misspelt one is refused."""
    with pytest.raises(AttributeError, match="'Corner' object has no attribute 'nmae'"):
        Corner("a").nmae = "b"  # type: ignore[attr-defined]  # what is tried


def test_a_class_is_compiled_when_it_has_many_values() -> None:
    """Nothing is compiled for the classes of which a command makes few; a derived class has its own defaults."""

    @frozen
    class Base:
        name: str
        lines: list[int] = field(default_factory=list)

    @frozen
    class Derived(Base):
        kind: ClassVar[str] = "derived"
        last: int = 7

    def made_by(defined: type) -> str:
        return str(vars(defined)["__init__"].__code__.co_filename)

    few = [(Derived("a").last, Derived("a", [1]).lines, Base(name="b").lines) for _ in range(2)]
    assert [made_by(each) for each in (Base, Derived)] == [dagflow.frozen.__file__] * 2
    many = [(Derived("a").last, Derived("a", [1]).lines, Base(name="b").lines) for _ in range(30)]
    assert [made_by(each) for each in (Base, Derived)] == ["<string>"] * 2
    assert few + many == [(7, [1], [])] * 32
    with pytest.raises(TypeError, match="unexpected keyword argument 'last'"):
        Base("a", last=1)  # type: ignore[call-arg]  # what is tried


@pytest.mark.parametrize(
    ("arguments", "options", "message"),
    [
        ((), {}, "missing 1 required positional argument: 'name'"),
        (("a",), {"name": "b"}, "got multiple values for argument 'name'"),
        (("a",), {"size": 1}, "got an unexpected keyword argument 'size'"),
        (("a", (), [], "s", 1, 2), {}, "takes from 2 to 6 positional arguments but 7 were given"),
    ],
)
@pytest.mark.parametrize("values", [0, 30])
def test_arguments_are_refused_as_python_refuses_them(
    values: int, arguments: tuple[Any, ...], options: dict[str, Any], message: str
) -> None:
    """Whether `__init__` is compiled or not."""

    @frozen
    class Place(Corner):
        column: int = 0

    for _ in range(values):
        Place("a")
    with pytest.raises(TypeError, match=message):
        Place(*arguments, **options)


def test_a_value_is_what_it_was_made_of_however_many_there_are() -> None:
    """Arrays have no equality that can be asked for, and what is computed behind the arguments sees all of them."""

    @mutable
    class Sum:
        numbers: npt.NDArray[np.int64]
        total: int = 0

        def __post_init__(self) -> None:
            self.total += int(self.numbers.sum())

    made = [Sum(np.arange(4), number) for number in range(40)]
    assert [each.total for each in made] == [6 + number for number in range(40)]


def test_what_dataclasses_ask_of_a_class_is_there() -> None:
    """Also before the first value is made."""

    @frozen
    class Line(Corner):
        column: int = 0

    assert [each.name for each in fields(Line)] == ["name", "lines", "notes", "secret", "column"]
    assert asdict(Line("a", column=3)) == {"name": "a", "lines": (), "notes": [], "secret": "", "column": 3}
    match Line("a", (1,), [], "", 5):
        case Line(name, lines, _, _, column):
            assert (name, lines, column) == ("a", (1,), 5)
    assert is_dataclass(Line)


def test_values_that_change_are_compared_and_have_no_hash() -> None:
    """They are none of a set or a dict."""
    one, other = Count(1), Count(1)
    assert one == other
    one.number += 1
    assert one != other
    with pytest.raises(TypeError, match="unhashable"):
        hash(one)


def test_a_field_that_is_not_given_is_refused() -> None:
    """Nothing would set it, because there is no class attribute beside a slot."""
    with pytest.raises(TypeError, match="has a field that __init__ does not take, as only a plain dataclass may"):

        @mutable
        class _Later:
            number: int = field(default=0, init=False)
