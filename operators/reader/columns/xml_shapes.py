"""Finds the texts of many elements of XML at once, where few have another shape than the others.

What is between brackets or quotes that are no text, such as `<a>` or `<a id=`, is markup, and the rest is text.
Elements with the same markup have the same shape: expat parses one of them, with the number of each text in its place,
which says at which path the text is, and whether the markup is well-formed. Elements with anything unusual, such as a
comment, are left to expat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import field
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.frozen import frozen, mutable
from dagflow.late import compute as pc
from dagflow.storage.columns import borders_of, bytes_of
from operators.reader.columns.machine_code import MachineCode
from operators.reader.scanning.search import NONE, Positions, positions_of

if TYPE_CHECKING:
    from operators.reader.columns.xml_kernels import Markup

Units = npt.NDArray[np.uint8]

MARKUP = MachineCode("operators.reader.columns.xml_kernels.Markup", 4 << 20)
"""Machine code that finds markup; without it, expat parses each element."""

SELF = "."
"""The path of the text of an element itself."""

_FEW = 8
"""So few elements of a shape are parsed one by one."""

_PIECE = re.compile(rb"(?s).[^>\"']*[>\"']")

MOST_SHAPES = 1024
"""Shapes that are known at a time: files whose tags never repeat have as many as elements."""


@frozen
class Shape:
    """The texts of elements with the same markup, which are counted from 0; -1 is an empty one without a place.

    Attributes:
        texts: Those at each path.
        blank: Those that must be white space.
    """

    texts: Mapping[str, list[int]]
    blank: list[int]


def _array_of(
    found: list[tuple[Positions, Positions, Positions]], markup: Markup, begins: Positions, is_list: bool
) -> pa.Array:
    """The texts at a path of all elements, which begin at the given places; null where an element has none.

    Of the texts that were found, there are the elements that they are in, where they begin and where they end.
    """
    count = len(begins)
    if not found:
        return pa.nulls(count, pa.list_(pa.string()) if is_list else pa.string())
    rows, starts, stops = map(np.concatenate, zip(*found, strict=True))
    if (np.diff(rows) < 0).any():
        order = np.argsort(rows, kind="stable")
        rows, starts, stops = rows[order], starts[order], stops[order]
    counts = np.bincount(rows, minlength=count)
    is_absent = pa.array(counts == 0) if not counts.all() else None
    if is_list:
        offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
        return pa.ListArray.from_arrays(pa.array(offsets), markup.copied(starts, stops), mask=is_absent)
    if is_absent is None:
        return markup.copied(starts, stops)
    places, ends = begins.copy(), begins.copy()
    places[rows], ends[rows] = starts, stops
    return pc.if_else(is_absent, pa.scalar(None, pa.string()), markup.copied(places, ends))


@mutable
class ElementShapes:
    """The shapes of elements that were met.

    Args:
        shape_of: The shape of an element that was made of pieces of markup; None if expat must parse such elements,
            and the reason if it refuses them.
        charset: The encoding of elements.
    """

    shape_of: Callable[[list[bytes]], Shape | str | None]
    charset: str
    _known: dict[bytes, Shape | str | None] = field(default_factory=dict)

    def found(
        self, elements: pa.BinaryArray, lists: Mapping[str, bool]
    ) -> tuple[Positions, dict[str, pa.Array], dict[int, str]]:
        """The elements that are usual, by their positions, and their texts at each path, which may be lists.

        Others are refused, for the reasons that their positions have, or left to expat.
        """
        borders, units = borders_of(elements).astype(np.int64), bytes_of(elements)
        borders -= borders[0]
        markup_of = MARKUP.after(len(units))
        if markup_of is None:
            return NONE, {}, {}
        markup = markup_of(units, borders)
        is_usual = np.diff(markup.firsts) > 0
        if units.max() >= 128:
            is_usual[np.searchsorted(borders, _odd_characters(elements, units, self.charset), "right") - 1] = False
        found: dict[str, list[tuple[Positions, Positions, Positions]]] = {path: [] for path in lists}
        is_taken, reasons = np.zeros(len(elements), bool), dict[int, str]()
        for shape, members in self._shaped(markup, np.flatnonzero(is_usual)):
            if isinstance(shape, str):
                reasons |= dict.fromkeys(members.tolist(), shape)
                continue
            members = members[_are_blank(markup, members, shape.blank)]
            is_taken[members] = True
            for path, indices in shape.texts.items():
                # The blank text of an element itself is none.
                having = members[~_are_blank(markup, members, indices)] if path == SELF else members
                stops = borders[having]
                for index in indices:
                    starts, stops = (stops, stops) if index < 0 else markup.texts(having, index)
                    found[path].append((having, starts, stops))
        arrays = {path: _array_of(texts, markup, borders[:-1], lists[path]) for path, texts in found.items()}
        rows = np.flatnonzero(is_taken)
        if len(rows) < len(elements):
            arrays = {path: array.take(pa.array(rows)) for path, array in arrays.items()}
        return rows, arrays, reasons

    def _shaped(self, markup: Markup, rows: Positions) -> Iterator[tuple[Shape | str, Positions]]:
        """The shapes of some elements, and the elements of each; without those that expat must parse."""
        if not len(rows):
            return
        found = markup.written.take(pa.array(rows)).dictionary_encode()
        codes = found.indices.to_numpy()
        members_of = np.split(np.argsort(codes, kind="stable"), np.cumsum(np.bincount(codes))[:-1])
        for key, members in zip(found.dictionary.to_pylist(), members_of, strict=True):
            if len(members) >= _FEW:
                if key not in self._known:
                    if len(self._known) == MOST_SHAPES:
                        self._known.clear()
                    self._known[key] = self.shape_of(_PIECE.findall(key))
                if (shape := self._known[key]) is not None:
                    yield shape, rows[members]


def _are_blank(markup: Markup, rows: Positions, indices: list[int]) -> npt.NDArray[np.bool_]:
    """For each of some elements whether the texts with these indices are white space."""
    are_blank = np.ones(len(rows), bool)
    for index in indices:
        starts, stops = markup.texts(rows, index)
        if (stops > starts).any():
            lengths = pc.binary_length(pc.utf8_trim_whitespace(markup.copied(starts, stops)))
            are_blank &= lengths.to_numpy() == 0
    return are_blank


def _odd_characters(elements: pa.BinaryArray, units: Units, charset: str) -> Positions:
    """The bytes of characters that only a parser can judge."""
    high = units >= 128
    try:
        if charset.lower() == "utf-8":
            elements.cast(pa.string())
            # U+FFFE and U+FFFF begin so, and are no characters of XML.
            high[:-1] = (units[:-1] == 0xEF) & (units[1:] == 0xBF)
            high[-1] = False
    except pa.ArrowInvalid:
        pass
    return positions_of(high)
