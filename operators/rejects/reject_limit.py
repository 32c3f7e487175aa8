"""Ends a run in which too many records were refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated

from pydantic import AfterValidator, Field

from dagflow.api.columns.column_typing import ColumnTyped
from dagflow.api.operator import Operator
from dagflow.api.properties import Count, Limit
from dagflow.errors import DagflowError
from dagflow.metrics.names import REJECTED


def _at_most_all(share: str) -> str:
    if float(share.rstrip("%")) > 100:
        raise ValueError(f"{share} is more than all records; give 100% at most, or null for any number")
    return share


Share = Annotated[str, Field(pattern=r"^[0-9]+(\.[0-9]+)?%$"), AfterValidator(_at_most_all)]
"""A share of all records, as 1% or 0.01%."""


MaxRejects = Annotated[
    Annotated[Count, Field(ge=0)] | Share | None,
    Limit(),
    Field(description="end the run when more records than this are refused, or a larger share of all, such as 1%"),
]


def is_over(most: int | str, count: int, records: int) -> bool:
    """Whether a count of records is more than a limit, which is a number or a Share of all records."""
    return count > (float(most.rstrip("%")) / 100 * records if isinstance(most, str) else most)


class RejectLimited(Operator, ColumnTyped):
    """An operator with a limit of refused records."""

    max_rejects: MaxRejects = None

    def _record_count(self, totals: Mapping[str, int]) -> int:
        """The number of all records, a share of which may be refused; for a reader, those emitted and those refused."""
        return totals.get(REJECTED, 0) + totals.get("messages", 0)

    def check_limits(self, totals: Mapping[str, int]) -> None:
        """End a run in which too many records were refused."""
        most = self.max_rejects
        if most is None:
            return
        rejected, records = totals.get(REJECTED, 0), self._record_count(totals)
        if is_over(most, rejected, records):
            raise DagflowError(
                f"{rejected} of {records} records were refused, and max_rejects is {most}",
                hint="the writer at port errors publishes the records that were refused in earlier windows; "
                "to continue and publish the rest, raise max_rejects or set it to null; otherwise check the format",
            )
