"""How many refused records are too many."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from dagflow.errors import DagflowError


def _part_of_all(share: str) -> str:
    if float(share.rstrip("%")) > 100:
        raise ValueError(f"{share} is more than all records; give 100% at most, or null for any number")
    return share


Share = Annotated[str, Field(pattern=r"^\d+(\.\d+)?%$"), AfterValidator(_part_of_all)]
"""Part of all records, as 1% or 0.01%."""


class RejectLimit:
    """The refused records that a run may have.

    Args:
        most: So many; or, as text, their share of all records that were read by then; None for any number.
    """

    def __init__(self, most: int | str | None) -> None:
        self._most = most
        self._share = float(most.rstrip("%")) / 100 if isinstance(most, str) else None

    def check(self, rejected: int, accepted: int) -> None:
        """Look at the counts of all windows up to now.

        Raises:
            DagflowError: Too many were refused.
        """
        if self._most is None:
            return
        allowed = self._most if self._share is None else self._share * (rejected + accepted)
        if rejected > float(allowed):
            raise DagflowError(
                f"{rejected} of {rejected + accepted} records were refused, and max_rejects is {self._most}",
                hint="what was refused in windows before this one is published by the writer at port errors; to see "
                "the rest there, and go on, raise max_rejects or set it to null; else see whether the format is right",
            )
