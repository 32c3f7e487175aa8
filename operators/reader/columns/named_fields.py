"""Lines of name, colon and value, as at the head of mails and in package lists."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from dagflow.late import compute as pc
from dagflow.storage.columns import borders_of
from operators.reader.byte_source import Bytes
from operators.reader.scanning.framing import pieces_of
from operators.reader.scanning.search import CR, LF, Positions, positions_of

_COLON = ord(":")
_BLANKS = (ord(" "), ord("\t"))


class NamedFields:
    """The fields of texts that have some names; a line that begins with a blank goes on with the value before it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = pa.array(names, pa.string())

    def values(self, texts: pa.StringArray) -> list[pa.StringArray]:
        """The values of each name, without blanks around them.

        Null where a text does not have it, and in all of a text that has another line, or a name of these twice.
        """
        return self._found(texts)[0]

    def why_not(self, texts: pa.StringArray) -> list[str]:
        """Why each of some texts has no values."""
        reasons = self._found(texts)[1]
        return [reasons.get(at, "none of the fields is there") for at in range(len(texts))]

    def _found(self, texts: pa.StringArray) -> tuple[list[pa.StringArray], dict[int, str]]:
        """The values, and for each text that has none because of one of its lines the reason."""
        borders = borders_of(texts).astype(np.int64)
        buffer = texts.buffers()[2] or pa.py_buffer(b"")
        buffer = buffer.slice(int(borders[0]), int(borders[-1] - borders[0]))
        data, borders = np.frombuffer(buffer, np.uint8), borders - borders[0]
        starts, ends, colons = _lines(data, borders)
        rows = np.searchsorted(borders, starts, "right") - 1
        others = np.flatnonzero((colons <= starts) | np.isin(data[starts], _BLANKS))
        refused, firsts = np.unique(rows[others], return_index=True)
        reasons = {}
        for row, at in zip(refused.tolist(), starts[others[firsts]].tolist(), strict=True):
            number = np.count_nonzero(data[borders[row] : at] == LF) + 1
            reasons[row] = f"line {number} has no name before a colon, and goes on with no other"
        named = np.setdiff1d(np.arange(len(starts)), others, assume_unique=True)
        found = pc.index_in(pieces_of(buffer, starts[named], colons[named]).cast(pa.string()), self._names)
        is_found = found.is_valid().to_numpy(zero_copy_only=False)
        named, found = named[is_found], found.drop_null().to_numpy()
        values = pc.ascii_trim_whitespace(pieces_of(buffer, colons[named] + 1, ends[named]).cast(pa.string()))
        places = []
        for index, name in enumerate(self._names.to_pylist()):
            fields = np.flatnonzero(found == index)
            rows_of = rows[named[fields]]
            reasons |= dict.fromkeys(rows_of[1:][np.diff(rows_of) == 0].tolist(), f"the field '{name}' is there twice")
            place = np.full(len(texts), -1)
            place[rows_of] = fields
            places.append(place)
        for place in places:
            place[[*reasons]] = -1
        return [values.take(pa.array(place, mask=place < 0)) for place in places], reasons


def _lines(data: Bytes, borders: Positions) -> tuple[Positions, Positions, Positions]:
    """Where lines begin that go on with no other, where their values end, and their first colons; -1 for none."""
    feeds = positions_of(data == LF)
    begins = np.union1d(borders[:-1], feeds + 1)
    begins = begins[begins < len(data)]
    first = data[begins]
    is_text = np.isin(begins, borders)
    goes_on = np.isin(first, _BLANKS) & ~is_text
    starts = begins[~goes_on & (first != LF) & (first != CR)]
    ends = np.minimum(np.append(starts[1:], len(data)), borders[np.searchsorted(borders, starts, "right")])
    line_ends = np.append(feeds, len(data))[np.searchsorted(feeds, starts)]
    colons = positions_of(data == _COLON)
    colons = np.append(colons, len(data))[np.searchsorted(colons, starts)]
    return starts, ends, np.where(colons < np.minimum(line_ends, ends), colons, -1)
