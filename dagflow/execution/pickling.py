"""Pickles operators for tasks, and names the attribute that cannot be pickled."""

from __future__ import annotations

import pickle

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
            f"{what} cannot be pickled, and so not be sent to tasks: {pickling_failure(error)}",
            operator=name,
            hint="make in setup(), which runs where the operator does, what cannot travel: locks, connections, lambdas",
        ) from error


def pickling_failure(error: Exception) -> str:
    """Why an object could not be pickled, in a few words."""
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
