"""Finds the rows of CSV in which text stands behind the quote that closes a field."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from operators.reader.scanning.file_view import Bytes
from operators.reader.scanning.positions import Positions
from operators.reader.scanning.quoting import OUTSIDE, Dialect, Quoting, quoting_of

_SHOWN_BYTES = 20
ADVICE = "if quotes are plain text in these files, set quote: none"


def stray_quotes(data: Bytes, dialect: Dialect, quoting: Quoting) -> tuple[Positions, Positions]:
    """The positions of quotes that close a field with text behind them, and of the quotes that open these fields.

    Args:
        data: Rows, from the beginning of one on.
        dialect: The bytes with a meaning.
        quoting: The quotes of the rows.
    """
    opens, closes = quoting.opens_and_closes()
    behind = (quoting.runs + quoting.lengths)[closes]
    if len(behind) and behind[-1] == len(data):
        behind = behind[:-1]
    behind = behind[~dialect.is_separator(data[behind])]
    if not len(behind):
        return behind, behind
    opening = quoting.runs[opens]
    return behind - 1, opening[np.searchsorted(opening, behind) - 1]


def rows_with_strays(data: Bytes, borders: Positions, dialect: Dialect) -> Iterator[tuple[int, str]]:
    """The rows with text behind a closing quote, ascending, each with the reason to refuse it.

    Args:
        data: Rows side by side, each with its newline.
        borders: Where each row begins, and the end of the last.
        dialect: The bytes with a meaning.
    """
    closing, opening = stray_quotes(data, dialect, quoting_of(data, dialect, True))
    rows, firsts = np.unique(np.searchsorted(borders, closing, "right") - 1, return_index=True)
    for row, first in zip(rows.tolist(), firsts.tolist(), strict=True):
        start, end = borders[row : row + 2].tolist()
        closed, opened = int(closing[first]), int(opening[first])
        text = data[closed + 1 : min(closed + 1 + _SHOWN_BYTES, end)].tobytes().splitlines()[0]
        yield (
            row,
            f"the quote at byte {closed - start} of the row closes the field that the quote at byte {opened - start} "
            f"opens, and text follows it: {text.decode(errors='replace')!r}; {ADVICE}; to keep such text as part of "
            "the field, set stray_quotes: keep",
        )


def unclosed_quote(data: Bytes, dialect: Dialect) -> int | None:
    """Where the quote stands that a row leaves open; None if it leaves none open.

    Args:
        data: The row, or its first bytes.
        dialect: The bytes with a meaning.
    """
    quoting = quoting_of(data, dialect, True)
    if quoting.transition(len(data)).applied(OUTSIDE) == OUTSIDE:
        return None
    return int(quoting.runs[quoting.opens_and_closes()[0]][-1])
