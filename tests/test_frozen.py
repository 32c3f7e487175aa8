"""Classes of values that are cheap to define."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field, replace

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
    assert replace(spot, column=4) == Spot("a", (1,), ["n"], "s", 4)


def test_methods_that_the_class_has_itself_stay() -> None:
    """Another comparison stays, with its hash."""
    assert len({Named("a"), Named("A")}) == 1
    assert repr(Named("a")) == "a"


def test_a_value_takes_no_other_attributes() -> None:
    """Its attributes are slots, so that a misspelt one is refused."""
    with pytest.raises(AttributeError, match="'Corner' object has no attribute 'nmae'"):
        Corner("a").nmae = "b"  # type: ignore[attr-defined]  # what is tried


def test_a_class_is_compiled_when_its_first_value_is_made() -> None:
    """Nothing is compiled for the many classes of which a command makes none; a derived class has its own defaults."""

    @frozen
    class Base:
        name: str
        lines: list[int] = field(default_factory=list)

    @frozen
    class Derived(Base):
        last: int = 7

    before = vars(Base)["__init__"], vars(Derived)["__init__"]
    assert [function.__code__.co_filename for function in before] == [dagflow.frozen.__file__] * 2
    assert (Derived("a").last, Derived("a", [1]).lines, Base(name="b").lines) == (7, [1], [])
    after = vars(Base)["__init__"], vars(Derived)["__init__"]
    assert [function.__code__.co_filename for function in after] == ["<string>"] * 2
    with pytest.raises(TypeError, match="unexpected keyword argument 'last'"):
        Base("a", last=1)  # type: ignore[call-arg]  # what is tried


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
