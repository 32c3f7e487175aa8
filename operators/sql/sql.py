"""Compute a query of SQL."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dagflow.api.capabilities import Composite, Expansion, Over
from dagflow.api.operator import Operator, Unified
from dagflow.api.ports import InputPort, OutputPort
from operators.rejects.record_refusing import MaxRejects, RejectLimited
from operators.sql.query_planner import QueryPlanner
from operators.sql.scope import SqlTable


class Sql(Operator, Composite):
    """Computes a query over the records of a stream, which it calls `input`.

    The query is planned into Select, Enrich, Aggregate and TopN, which `dagflow plan` shows.

    Guarantee: that of the operators that it is planned into.
    """

    query: Annotated[
        str, Field(min_length=1, description="select … from input [join table using (column)] [where …] [group by …] …")
    ]
    tables: Annotated[
        dict[str, SqlTable], Field(description="tables to join with, by name, such as {rates: {table: csv:rates.csv}}")
    ] = {}  # noqa: RUF012  # a default, which pydantic copies
    over: Annotated[
        Over | None, Field(description="what a result of group by covers: window, run or {millis: n}, as for Aggregate")
    ] = None

    max_rejects: MaxRejects = None

    input = InputPort()
    output = OutputPort()
    errors = OutputPort()

    def check_properties(self) -> None:
        self.expand()

    def expand(self) -> Expansion:
        parts = QueryPlanner(self.query, self.tables, self.over).steps()
        names = list(parts)
        # Results of groups come from no single record, and are in another stage: a value that cannot be computed of
        # them ends the run, as in Aggregate.
        end = next((number for number, part in enumerate(parts.values(), 1) if isinstance(part, Unified)), len(parts))
        refusing = [name for name in names[:end] if "errors" in parts[name].output_ports]
        for name in refusing:
            part = parts[name]
            if isinstance(part, RejectLimited):
                part.max_rejects = self.max_rejects
        return Expansion.chain(parts, refusing)
