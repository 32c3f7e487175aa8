"""The trailer of a CSV file: its last rows, which say how many rows it has."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import numpy.typing as npt
from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from dagflow.api.properties import shown_text
from dagflow.api.records import RecordBatch
from dagflow.api.regular_expressions import Pattern, bytes_of, compiled
from dagflow.frozen import frozen

COUNT = b"count"
_QUOTE_STATES = 16
_REFUSED, _FOUND = 1, 2


def _known_totals(pattern: str) -> str:
    unknown = [name.decode() for name in compiled(pattern).groupindex if name != COUNT]
    if unknown:
        raise ValueError(f"the control total of a group must be named count, got '{unknown[0]}'")
    return pattern


class CsvTrailer(BaseModel):
    """The option `trailer`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    rows: Annotated[
        Pattern,
        AfterValidator(_known_totals),
        Field(description="regular expression for a whole trailer row; its group count is that of the other rows"),
    ]


@frozen
class FoundTrailer:
    """The trailer of a file.

    Attributes:
        start: Where its first row begins.
        problem: Why the file is refused; "" if it is as its trailer says.
    """

    start: int
    problem: str = ""

    def added_to(self, state: int) -> int:
        """The state of quotes in which a block begins, with what its reader must know of the trailer."""
        return state + _QUOTE_STATES * (_REFUSED if self.problem else _FOUND + self.start)

    @classmethod
    def known_by(cls, entry_state: int) -> FoundTrailer | None:
        """The trailer by the state of a block; None if the file was not looked at for it."""
        known = max(entry_state, 0) // _QUOTE_STATES
        if known == _REFUSED:
            return cls(0, "its trailer is missing or wrong, as its first block says")
        return cls(known - _FOUND) if known else None


def quote_state(entry_state: int) -> int:
    """The state of quotes in which a block begins."""
    return entry_state % _QUOTE_STATES if entry_state >= 0 else entry_state


def kept_trailer(entry_state: int) -> int:
    """What the state of a block says of the trailer, to be added to the state of quotes of another block."""
    return max(entry_state, 0) // _QUOTE_STATES * _QUOTE_STATES


class TrailerSearch:
    """Finds the rows at the end of a file that match the pattern, and compares their totals with the other rows."""

    def __init__(self, trailer: CsvTrailer) -> None:
        self._match: Callable[[bytes], Any] = compiled(trailer.rows).fullmatch
        self._counts = COUNT in compiled(trailer.rows).groupindex
        self._rows = 0
        self._found: list[tuple[int, Any]] = []
        self._last = ""

    def refused(self, _: bytes) -> None:
        """Count a row that the format refuses: it is a row of the file."""
        self._rows += len(self._found) + 1
        self._found = []

    def take(self, batch: RecordBatch, is_row: npt.NDArray[np.bool_], charset: str) -> None:
        """Take in the next rows: those of a batch that is_row says are some, in a charset."""
        rows, offsets = np.flatnonzero(is_row).tolist(), batch.offsets()
        found: list[tuple[int, Any]] = []
        for index in range(len(rows) - 1, -1, -1):
            [raw] = batch.slice(rows[index], 1).to_pylist()
            text = raw.rstrip(b"\r\n").decode(charset, "replace")
            if (match := self._match(bytes_of(text))) is None:
                self._rows += index + 1 + len(self._found)
                self._found, self._last = [], shown_text(text[:80])
                break
            found.append((int(offsets[rows[index]]), match))
        self._found += found[::-1]

    def result(self) -> FoundTrailer:
        """The trailer, when all rows were taken in."""
        if not self._found:
            last = f"; the last one is {self._last}" if self._last else ""
            return FoundTrailer(0, f"its trailer is missing: no row at its end matches trailer{last}")
        for _, match in self._found if self._counts else ():
            text = (match.group(COUNT) or b"").decode("utf-8", "replace")
            if not text.isdecimal() or int(text) != self._rows:
                return FoundTrailer(0, f"its trailer says that it has {text or 'no'} rows, and it has {self._rows}")
        return FoundTrailer(self._found[0][0])
