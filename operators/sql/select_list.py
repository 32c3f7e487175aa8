"""The select list of a query: the columns that it emits, in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import StreamColumns
from operators.transform.select import Select, SelectPlan

COLUMN, STAR = "column", "star"


class SelectList(Select):
    """Computes the columns of a query, after keeping the records for which its condition is true."""

    items: Annotated[
        list[tuple[str, str]],
        Field(description="column and a name in columns, or star and a table, empty for all"),
    ]
    tables: Annotated[tuple[str, ...], Field(description="tables whose columns are called `table.column`")] = ()
    common: Annotated[tuple[str, ...], Field(description="such columns that * leaves out: the records have them")] = ()

    def check_properties(self) -> None:
        """Nothing to check: the query was checked."""

    def resulting_columns(self, arriving: StreamColumns) -> StreamColumns:
        """The columns of the select list; others only if a star takes them."""
        found = super().resulting_columns(arriving)
        takes_all = any(kind == STAR and table in ("", "input") for kind, table in self.items)
        return found if takes_all else StreamColumns(found.schema)

    def columns_used(self, port: str, column: str, arriving: StreamColumns) -> Iterable[str]:
        """The columns in its expression, or the one that a star passes on."""
        names = arriving.schema.names
        if port != "output" or column in self.columns or column in names:
            return super().columns_used(port, column, arriving)
        tables = [f"{table}.{column}" for table in self.tables]
        return [name for name in tables if name in names] or super().columns_used(port, column, arriving)

    def plan(self, schema: pa.Schema) -> SelectPlan:
        """Check the expressions, and put the columns in order.

        Raises:
            ExpressionError: An expression does not fit the columns.
            ValueError: Two columns would have one name.
        """
        where = None if self.where is None else self.where.bind_condition(schema)
        computed = {name: expression.bind(schema) for name, expression in self.columns.items()}
        layout: list[tuple[str, int | None]] = []
        for kind, name in self.items:
            layout += [(name, None)] if kind == COLUMN else self._star(schema, name)
        return SelectPlan.of(schema, where, computed, layout)

    def _star(self, schema: pa.Schema, table: str) -> list[tuple[str, int | None]]:
        found: list[tuple[str, int | None]] = []
        for index, name in enumerate(schema.names):
            prefix, _, short = name.partition(".")
            owner = prefix if prefix in self.tables else "input"
            if table in ("", owner) and not (table == "" and name in self.common):
                found.append((short if owner != "input" else name, index))
        return found
