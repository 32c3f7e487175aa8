"""Pickles what belongs to operators, and says whose it is where that cannot be done."""

from __future__ import annotations

import pickle
from typing import Any

from dagflow.api.operator import Operator
from dagflow.errors import OperatorError


def pickled_operator(name: str, operator: Operator) -> bytes:
    """An operator as tasks get it.

    Raises:
        OperatorError: It cannot be pickled.
    """
    try:
        return pickle.dumps(operator, protocol=5)
    except Exception as error:  # an author's class may raise anything here
        attribute = _unpicklable_attribute(operator)
        what = f"its attribute '{attribute}'" if attribute else "it"
        raise OperatorError(
            f"{what} cannot be pickled, and so not be sent to tasks: {_reason(error)}",
            operator=name,
            hint="make in setup(), which runs where the operator does, what cannot travel: locks, connections, lambdas",
        ) from error


def pickled_state(state: Any, operator: str, window_id: int, partition: int) -> bytes:
    """What snapshot() gave, as it is kept until the next window.

    Raises:
        OperatorError: It cannot be pickled.
    """
    try:
        return pickle.dumps(state, protocol=5)
    except Exception as error:  # an author's class may raise anything here
        raise OperatorError(
            f"snapshot() gave {type(state).__name__}, which cannot be pickled: {_reason(error)}",
            operator=operator,
            window_id=window_id,
            partition=partition,
            hint="give what restore() can make it from again: numbers, text, arrays, and collections of these",
        ) from error


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _unpicklable_attribute(operator: Operator) -> str:
    """The first attribute that cannot be pickled; "" where it is something else."""
    for name, value in vars(operator).items():
        if name not in operator.output_ports:
            try:
                pickle.dumps(value, protocol=5)
            except Exception:  # as above
                return name
    return ""
