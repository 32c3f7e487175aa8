"""Mistakes in expressions."""

from __future__ import annotations

from dagflow.api.properties import PropertyTextError


class ExpressionError(PropertyTextError):
    """An expression is wrong, or does not fit the columns that it is computed of."""
