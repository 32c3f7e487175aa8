"""Checks of the operators that code gives to an app."""

from __future__ import annotations

from typing import Any

from dagflow.api.operator import Operator
from dagflow.api.partitioning import PartitionPolicy
from dagflow.api.properties import property_model
from dagflow.api.restored_values import difference
from dagflow.errors import PlanError, Problem
from dagflow.spec.problems import Place


def require_instance(given: object, kind: type[Operator] | type[PartitionPolicy], place: Place) -> None:
    """Refuse what is no operator, or no policy.

    Args:
        given: What the app was given.
        kind: The class that it is to be an instance of.
        place: The line that gave it.

    Raises:
        PlanError: It is something else, such as the class itself.
    """
    if isinstance(given, kind):
        return
    if isinstance(given, type) and issubclass(given, kind):
        found = f"the class {given.__name__}; construct it, with {given.__name__}(…)"
    else:
        found = f"the class {given.__name__}" if isinstance(given, type) else f"a {type(given).__name__}"
    message = f"an instance of {kind.__name__} is expected, and this is {found}"
    raise PlanError([Problem(place.file, place.line, 0, message)])


def changed_properties(name: str, operator: Operator, place: Place) -> list[Problem]:
    """The properties that were set after an operator was constructed, which are not those of the app's instances.

    Args:
        name: The operator's name.
        operator: The operator that the app was given.
        place: The line that gave it.
    """
    cls = type(operator)
    try:
        constructed: Any = cls(**operator.given_properties)
    except Exception:  # the plan, which constructs it as well, tells what its constructor raises
        return []
    names = property_model(cls).model_fields
    changed = [each for each in names if difference(getattr(constructed, each), getattr(operator, each)) is not None]
    return [
        Problem(
            place.file,
            place.line,
            0,
            f"operator '{name}': its property '{each}' was set after {cls.__name__}(…) had made it, and the app makes "
            f"instances of its own: give it to {cls.__name__}({each}=…)",
        )
        for each in changed
    ]
