"""Columns of many files: numbers, and names that are stored in one text."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Sequence
from typing import Any, overload

import numpy as np
import numpy.typing as npt

Column = npt.NDArray[np.int64]
"""One number for each of many files."""

_SEPARATOR = "\0"  # no path has this character


class NameColumn(Sequence[str]):
    """Names in one text, a third of their size as objects: the driver holds the names of several windows."""

    __slots__ = ("_borders", "_text")

    def __init__(self, text: str) -> None:
        self._text = text
        self._borders: array[int] | None = None

    @classmethod
    def of(cls, names: Sequence[str]) -> NameColumn:
        return cls(_SEPARATOR.join([*names, ""]))

    @property
    def text(self) -> str:
        return self._text

    def take(self, positions: Column) -> NameColumn:
        if not len(positions):
            return NameColumn("")
        if (np.diff(positions) == 1).all():
            return self[int(positions[0]) : int(positions[-1]) + 1]
        first, last = int(positions.min()), int(positions.max())
        names = list(self[first : last + 1])
        return NameColumn.of([names[position] for position in (positions - first).tolist()])

    def __len__(self) -> int:
        return self._text.count(_SEPARATOR)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> NameColumn: ...
    def __getitem__(self, index: int | slice) -> str | NameColumn:
        borders = self._found_borders()
        if isinstance(index, slice):
            start, end, step = index.indices(len(borders) - 1)
            if step != 1:
                raise ValueError(f"names are taken out in a row, not in steps of {step}")
            return NameColumn(self._text[borders[start] : borders[max(start, end)]])
        position = range(len(borders) - 1)[index]
        return self._text[borders[position] : borders[position + 1] - 1]

    def _found_borders(self) -> array[int]:
        """The start of each name in the text, and the end of the text."""
        if self._borders is None:
            # All characters get the same number of bytes; lone surrogates stand for bytes that are not UTF-8.
            is_ascii = self._text.isascii()
            encoded = self._text.encode("ascii" if is_ascii else "utf-32-le", "surrogatepass")
            separators = np.flatnonzero(np.frombuffer(encoded, np.uint8 if is_ascii else "<u4") == 0)
            self._borders = array("q", np.append(0, separators + 1).tobytes())
        return self._borders

    def __iter__(self) -> Iterator[str]:
        return iter(self._text.split(_SEPARATOR)[:-1])

    def __reduce__(self) -> tuple[Any, ...]:
        return NameColumn, (self._text,)
