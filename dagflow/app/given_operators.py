"""Checks of the operators and policies that code gives to an app."""

from __future__ import annotations

import inspect
from typing import Any

from dagflow.api.operator import Operator
from dagflow.api.partitioning import PartitionPolicy
from dagflow.api.properties import own_arguments, property_model
from dagflow.api.saved_values import difference
from dagflow.errors import PlanError, Problem
from dagflow.spec.problems import Place
from dagflow.spec.property_check import declaration


def require_instance(given: object, kind: type[Operator] | type[PartitionPolicy], place: Place) -> None:
    """Refuse an object that is no operator, or no policy.

    Raises:
        PlanError: The given object is no instance of the class, but the class itself for example.
    """
    if isinstance(given, kind):
        return
    if isinstance(given, type) and issubclass(given, kind):
        found = f"the class {given.__name__}; construct it, with {given.__name__}(…)"
    else:
        found = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
    message = f"an instance of {kind.__name__} is expected, and this is {found}"
    raise PlanError([place.problem(message)])


def lost_values(owner: str, given: Operator | PartitionPolicy, place: Place) -> list[Problem]:
    """Problems for the values of an operator or a policy that the app's own instances would lack.

    The app makes instances with the same properties. They lack arguments of the constructor that are no properties,
    and properties that were set later.
    """
    cls = type(given)
    own = []
    try:
        names = property_model(cls).model_fields
        own = own_arguments(given)
        constructed: Any = cls(**given.given_properties)
    except Exception:  # the plan constructs the operator as well, and reports what its constructor raises
        return [_kept_back(owner, cls, each, each.name in names, place) for each in own]
    # An argument may have become a property of another name, or be what it is by default.
    if own and difference(given.__getstate__(), constructed.__getstate__()) is not None:
        return [_kept_back(owner, cls, each, each.name in names, place) for each in own]
    changed = [each for each in names if difference(getattr(constructed, each), getattr(given, each)) is not None]
    return [
        place.problem(
            f"{owner}: its property '{each}' was set after {cls.__name__}(…) had made it, and the app makes "
            f"instances of its own: give it to {cls.__name__}({each}=…)"
        )
        for each in changed
    ]


def _kept_back(owner: str, cls: type[Any], argument: inspect.Parameter, is_property: bool, place: Place) -> Problem:
    """Advice about an argument that a constructor has not handed on."""
    if is_property:
        what = "does not hand it on"
        advice = f"let it call super().__init__({argument.name}={argument.name}, …)"
    elif argument.kind is argument.VAR_POSITIONAL:
        what = "these are no properties"
        advice = "declare a property for each of them in the class body, and give it by name"
    else:
        what = "it is no property"
        advice = f"declare {_declared(argument)} in the class body in its place"
    message = (
        f"{owner}: {cls.__name__}.__init__() was given '{argument.name}' and {what}, and the app makes "
        f"instances of its own with the properties alone: {advice}"
    )
    return place.problem(message)


def _declared(argument: inspect.Parameter) -> str:
    """How a class body declares a property for an argument, of the type that the argument has."""
    if argument.annotation is argument.empty or argument.default is argument.empty:
        return declaration(argument.name, argument.default)
    kind = argument.annotation
    kind = kind if isinstance(kind, str) else inspect.formatannotation(kind)
    return f"`{argument.name}: {kind} = {argument.default!r}`"
