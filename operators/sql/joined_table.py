"""A table in the from clause of a query."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from pydantic import Field

from dagflow.suggestions import did_you_mean
from operators.expressions.expression_error import ExpressionError
from operators.transform.enrich import Enrich


class JoinedTable(Enrich):
    """Joins records with a table whose columns are called `alias.column`, so that queries can tell them apart."""

    alias: Annotated[str, Field(description="what the query calls the table")]
    further: Annotated[
        list[tuple[str, str]] | None,
        Field(description="pairs as those of on, whose columns of the records are in on already"),
    ] = None
    wanted: Annotated[list[str] | None, Field(description="columns that the query may name; None for all")] = None
    query: Annotated[str, Field(description="the query")] = ""
    named: Annotated[
        dict[str, int],
        Field(description="columns that are the table's for sure, and where"),
    ] = {}  # noqa: RUF012  # a default, which pydantic copies

    def compared(self) -> list[tuple[str, str]]:
        """All pairs: a query may compare a column of the records with several of the table."""
        return [*super().compared(), *(self.further or ())]

    def _added(self, schema: pa.Schema) -> dict[str, str]:
        """The columns that the query may name."""
        names = schema.names if self.wanted is None else [name for name in schema.names if name in self.wanted]
        return {f"{self.alias}.{name}": name for name in names}

    def require_named(self, table: pa.Schema) -> None:
        """Refuse a column that the query takes from the table, and that the table lacks.

        Raises:
            ExpressionError: The table lacks a named column.
        """
        for name, offset in self.named.items():
            if name not in table.names:
                hint = did_you_mean(name, table.names) or f"; there are {', '.join(table.names)}"
                raise ExpressionError(f"table '{self.alias}' has no column '{name}'{hint}", self.query, offset)
