"""Finds the texts of many elements of XML at once, where few have another shape than the others.

What is between brackets or quotes that are no text, such as `<a>` or `<a id=`, is markup, and the rest is text.
Elements with the same markup have the same shape: expat parses one of them, with the number of each text in its place,
which says at which path the text is, and whether the markup is well-formed. Elements with anything unusual, such as a
reference or a comment, are left to expat.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.frozen import frozen
from dagflow.late import compute as pc
from dagflow.storage.columns import borders_of
from operators.reader.scanning.framing import pieces_of
from operators.reader.scanning.search import CR, LF, NONE, Positions, contains, positions_of

Units = npt.NDArray[np.uint8]

_LESS, _GREATER, _QUOTE, _APOSTROPHE, _AND, _TAB = b"<>\"'&\t"

SELF = "."
"""The path of the text of an element itself."""

_FEW = 8
"""So few elements of a shape are parsed one by one."""


@frozen
class Shape:
    """The texts of elements with the same markup, which are counted from 0; -1 is an empty one without a place.

    Attributes:
        texts: Those at each path.
        blank: Those that must be white space.
    """

    texts: Mapping[str, list[int]]
    blank: list[int]


@frozen
class Markup:
    """The pieces of markup of elements; behind each but the last of an element is a text.

    Attributes:
        starts: Where each piece begins.
        stops: Where each ends.
        firsts: The first piece of each element, and one past the last of all.
    """

    starts: Positions
    stops: Positions
    firsts: Positions

    def texts(self, rows: Positions, index: int) -> tuple[Positions, Positions]:
        """Where the texts with an index begin and end in some elements."""
        places = self.firsts[rows] + index
        return self.stops[places], self.starts[places + 1]


@dataclass(slots=True)
class FoundTexts:
    """The texts at a path: for each the element that it is in, where it begins and where it ends."""

    rows: list[Positions] = field(default_factory=list)
    starts: list[Positions] = field(default_factory=list)
    stops: list[Positions] = field(default_factory=list)

    def array(self, buffer: pa.Buffer, begins: Positions, is_list: bool) -> pa.Array:
        """The texts of all elements, which begin at the given places; null where an element has none."""
        count = len(begins)
        if not self.rows:
            return pa.nulls(count, pa.list_(pa.string()) if is_list else pa.string())
        rows, starts, stops = map(np.concatenate, (self.rows, self.starts, self.stops))
        if (np.diff(rows) < 0).any():
            order = np.argsort(rows, kind="stable")
            rows, starts, stops = rows[order], starts[order], stops[order]
        counts = np.bincount(rows, minlength=count)
        is_absent = pa.array(counts == 0) if not counts.all() else None
        if is_list:
            offsets = np.append(0, np.cumsum(counts)).astype(np.int32)
            return pa.ListArray.from_arrays(pa.array(offsets), _texts(buffer, starts, stops), mask=is_absent)
        if is_absent is None:
            return _texts(buffer, starts, stops)
        places, ends = begins.copy(), begins.copy()
        places[rows], ends[rows] = starts, stops
        return pc.if_else(is_absent, pa.scalar(None, pa.string()), _texts(buffer, places, ends))


@dataclass(slots=True)
class ElementShapes:
    """The shapes of elements that were met.

    Args:
        shape_of: The shape of an element that was made of pieces of markup; None if expat must parse such elements.
        charset: The encoding of elements.
    """

    shape_of: Callable[[tuple[bytes, ...]], Shape | None]
    charset: str
    _known: dict[tuple[bytes, ...], Shape | None] = field(default_factory=dict)

    def found(self, elements: pa.BinaryArray, lists: Mapping[str, bool]) -> tuple[Positions, dict[str, pa.Array]]:
        """The elements that are usual, by their positions, and their texts at each path, which may be lists."""
        rows = np.arange(len(elements))
        buffer, borders, units = _bytes_of(elements)
        brackets = _brackets_of(units)
        is_usual = _usual(elements, borders, units, brackets, self.charset)
        if not is_usual.all():
            rows = rows[is_usual]
            if not len(rows):
                return rows, {}
            buffer, borders, units = _bytes_of(elements.take(pa.array(rows)))
            brackets = _brackets_of(units)
        markup = _markup_of(brackets, borders)
        found: dict[str, FoundTexts] = {path: FoundTexts() for path in lists}
        is_taken = np.zeros(len(rows), bool)
        for shape, members in self._shaped(buffer, markup):
            members = members[_are_blank(buffer, markup, members, shape.blank)]
            is_taken[members] = True
            for path, indices in shape.texts.items():
                # The blank text of an element itself is none.
                having = members[~_are_blank(buffer, markup, members, indices)] if path == SELF else members
                stops = borders[having]
                for index in indices:
                    starts, stops = (stops, stops) if index < 0 else markup.texts(having, index)
                    found[path].rows.append(having)
                    found[path].starts.append(starts)
                    found[path].stops.append(stops)
        arrays = {path: texts.array(buffer, borders[:-1], lists[path]) for path, texts in found.items()}
        if is_taken.all():
            return rows, arrays
        kept = pa.array(np.flatnonzero(is_taken))
        return rows[is_taken], {path: array.take(kept) for path, array in arrays.items()}

    def _shaped(self, buffer: pa.Buffer, markup: Markup) -> list[tuple[Shape, Positions]]:
        """The shapes of elements, and the elements of each; without those that expat must parse."""
        pieces = pieces_of(buffer, markup.starts, markup.stops).dictionary_encode()
        ids = pieces.indices.to_numpy()
        firsts, counts = markup.firsts[:-1], np.diff(markup.firsts)
        places = np.arange(len(ids)) - np.repeat(firsts, counts)
        weights = np.random.default_rng(1).integers(1, 1 << 63, int(counts.max()), np.uint64)
        hashes = np.add.reduceat((ids + 1).astype(np.uint64) * weights[places], firsts)
        codes = pa.array(hashes).dictionary_encode().indices.to_numpy()
        samples = np.unique(codes, return_index=True)[1]
        # Elements that have a hash in common may differ.
        is_same = counts == counts[samples][codes]
        alike = np.repeat(firsts[samples][codes], counts) + places
        is_same &= np.logical_and.reduceat(ids == ids[np.minimum(alike, len(ids) - 1)], firsts)
        found = []
        order = np.argsort(codes, kind="stable")
        groups = np.split(order, np.cumsum(np.bincount(codes))[:-1]) if len(samples) > 1 else [order]
        for sample, group in zip(samples.tolist(), groups, strict=True):
            if len(group) >= _FEW:
                own = ids[firsts[sample] : firsts[sample] + counts[sample]]
                key = tuple(pieces.dictionary.take(pa.array(own)).to_pylist())
                if key not in self._known:
                    self._known[key] = self.shape_of(key)
                if (shape := self._known[key]) is not None:
                    found.append((shape, group[is_same[group]]))
        return found


def _bytes_of(elements: pa.BinaryArray) -> tuple[pa.Buffer, Positions, Units]:
    """The bytes of elements that are side by side, where each begins and the last ends, and the bytes as an array."""
    borders = borders_of(elements).astype(np.int64)
    buffer = elements.buffers()[2].slice(int(borders[0]), int(borders[-1] - borders[0]))
    return buffer, borders - borders[0], np.frombuffer(buffer, np.uint8)


def _texts(buffer: pa.Buffer, starts: Positions, stops: Positions) -> pa.StringArray:
    found = pieces_of(buffer, starts, stops)
    return pa.StringArray.from_buffers(len(found), found.buffers()[1], found.buffers()[2], offset=found.offset)


def _are_blank(buffer: pa.Buffer, markup: Markup, rows: Positions, indices: list[int]) -> npt.NDArray[np.bool_]:
    """For each of some elements whether the texts with these indices are white space."""
    are_blank = np.ones(len(rows), bool)
    for index in indices:
        starts, stops = markup.texts(rows, index)
        if (stops > starts).any():
            lengths = pc.binary_length(pc.utf8_trim_whitespace(_texts(buffer, starts, stops)))
            are_blank &= lengths.to_numpy() == 0
    return are_blank


@frozen
class Brackets:
    """The brackets of elements, and the quotes within tags: for each the bracket before it."""

    positions: Positions
    opens: npt.NDArray[np.bool_]
    quotes: Positions
    tags: Positions

    @property
    def are_opening(self) -> npt.NDArray[np.bool_]:
        """Which quotes open a value: every other one of a tag."""
        is_first = np.append(True, self.tags[1:] != self.tags[:-1])
        places = np.arange(len(self.tags))
        even: npt.NDArray[np.bool_] = ((places - np.maximum.accumulate(np.where(is_first, places, 0))) & 1) == 0
        return even


def _brackets_of(units: Units) -> Brackets:
    positions = np.flatnonzero((units == _LESS) | (units == _GREATER))
    opens = units[positions] == _LESS
    if not (contains(units, _QUOTE) or contains(units, _APOSTROPHE)):
        return Brackets(positions, opens, NONE, NONE)
    quotes = positions_of((units == _QUOTE) | (units == _APOSTROPHE))
    tags = np.searchsorted(positions, quotes) - 1
    is_markup = opens[tags]
    return Brackets(positions, opens, quotes[is_markup], tags[is_markup])


def _usual(
    elements: pa.BinaryArray, borders: Positions, units: Units, brackets: Brackets, charset: str
) -> npt.NDArray[np.bool_]:
    """Which elements have nothing but tags and texts, whose brackets, quotes and characters mean what they show."""
    is_usual = np.ones(len(elements), bool)

    def leave(positions: Positions) -> None:
        is_usual[np.searchsorted(borders, positions, "right") - 1] = False

    for byte in (_AND, CR):
        if contains(units, byte):
            leave(positions_of(units == byte))
    controls = positions_of(units < 32)
    breaks = (units[controls] == _TAB) | (units[controls] == LF)
    leave(controls[~breaks])
    if units.max() >= 128:
        leave(_odd_characters(elements, units, charset))
    firsts = np.searchsorted(brackets.positions, borders)
    counts = np.diff(firsts)
    due = ((np.arange(len(brackets.positions)) - np.repeat(firsts[:-1], counts)) & 1) == 0
    leave(brackets.positions[brackets.opens != due])
    is_usual[(counts & 1) == 1] = False
    quotes, tags = brackets.quotes, brackets.tags
    if len(quotes):
        is_pair = (tags[1:] == tags[:-1]) & (units[quotes[1:]] == units[quotes[:-1]])
        is_opening = brackets.are_opening
        leave(quotes[is_opening & ~np.append(is_pair, False)])
        # A line break in a value becomes a blank.
        breaks = controls[breaks]
        leave(breaks[np.append(is_opening, False)[np.searchsorted(quotes, breaks) - 1]])
    return is_usual


def _odd_characters(elements: pa.BinaryArray, units: Units, charset: str) -> Positions:
    """The bytes of characters that only a parser can judge."""
    high = units >= 128
    try:
        if charset.lower() in ("utf-8", "utf8"):
            elements.cast(pa.string())
            # U+FFFE and U+FFFF begin so, and are no characters of XML.
            high[:-1] = (units[:-1] == 0xEF) & (units[1:] == 0xBF)
            high[-1] = False
    except pa.ArrowInvalid:
        pass
    return positions_of(high)


def _markup_of(brackets: Brackets, borders: Positions) -> Markup:
    """The pieces of markup of usual elements."""
    starts, stops = brackets.positions[0::2], brackets.positions[1::2] + 1
    if len(brackets.quotes):
        is_opening = brackets.are_opening
        starts = np.sort(np.append(starts, brackets.quotes[~is_opening]), kind="stable")
        stops = np.sort(np.append(stops, brackets.quotes[is_opening] + 1), kind="stable")
    return Markup(starts, stops, np.searchsorted(starts, borders))
