"""Finds delimiters in code units, including delimiters that overlap themselves, at any cut of a file."""

from __future__ import annotations

import contextlib
import ctypes
import logging
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dagflow.api.records import Delimiters
from dagflow.frozen import frozen
from dagflow.storage.location import redacted
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import Bytes, ByteSource, read_exactly
from operators.reader.formats.base import CHUNK_BYTES, HOLE, ByteAccounting

CodeUnits = npt.NDArray[Any]
"""Code units: bytes, or the 2 or 4 bytes that UTF-16 and UTF-32 are made of."""

NONE = np.empty(0, np.int64)

LF, CR = b"\n\r"

BYTE_ORDER_MARK = b"\xef\xbb\xbf"

NEWLINES = ("\n", "\r\n", "\r")
"""The terminators of lines, in the order of the codes that find_newlines gives."""


@frozen
class Terminators:
    """The terminators of records in a range of bytes.

    Attributes:
        starts: Where each terminator begins, ascending.
        stops: One past the end of each.
        codes: For each the index of its bytes in the format's table; None where all have the first.
        records: What is before each and behind the one before it, without NULs, where the search has copied that.
    """

    starts: Positions
    stops: Positions
    codes: npt.NDArray[np.uint8] | None = None
    records: pa.BinaryArray | None = None

    def part(self, start: int, end: int) -> Terminators:
        """The terminators [start, end)."""
        codes = None if self.codes is None else self.codes[start:end]
        records = None if self.records is None else self.records[start:end]
        return Terminators(self.starts[start:end], self.stops[start:end], codes, records)

    def delimiters(self, table: tuple[bytes, ...]) -> Delimiters:
        """The terminators as delimiters of a batch, in their simplest form."""
        if self.codes is None:
            return Delimiters(table[:1])
        if (self.codes == self.codes[0]).all():
            return Delimiters((table[self.codes[0]],))
        return Delimiters(table, self.codes)


@frozen
class CodeUnit:
    """The unit that a text is encoded in: a byte, or the 2 or 4 bytes of UTF-16 and UTF-32."""

    dtype: str = "u1"

    @property
    def size(self) -> int:
        """Bytes in a code unit."""
        return int(self.dtype[-1])

    def view(self, data: Bytes) -> CodeUnits:
        """Bytes as code units, without a torn unit at the end; the first byte begins a unit."""
        return data if self.size == 1 else data[: len(data) // self.size * self.size].view(self.dtype)


BYTE = CodeUnit()


def overlaps_itself(pattern: bytes, unit: CodeUnit = BYTE) -> bool:
    """Whether two occurrences of pattern can share code units, as those of `||` or `|+|` can."""
    return any(pattern.endswith(pattern[:length]) for length in range(unit.size, len(pattern), unit.size))


def occurrences(units: CodeUnits, pattern: CodeUnits) -> Positions:
    """Positions of a pattern, also of occurrences that share code units."""
    size = len(units) - len(pattern) + 1
    if size <= 0:
        return NONE
    hits = units[:size] == pattern[0]
    # Two comparisons of the whole range leave so few positions that looking these up costs next to nothing.
    if len(pattern) > 1:
        hits &= units[len(pattern) - 1 :] == pattern[-1]
    found = positions_of(hits)
    for index in range(1, len(pattern) - 1):
        found = found[units[found + index] == pattern[index]]
    return found


def without_overlaps(found: Positions, length: int) -> Positions:
    """The occurrences that a scan from left to right takes: each begins where the last taken one ended, or later.

    An occurrence is certainly taken if no other begins less than length before it. From these the others
    are reached by jumps to the next occurrence that does not overlap, doubled in each round.
    """
    if len(found) < 2:
        return found
    is_taken = np.empty(len(found) + 1, bool)
    is_taken[0], is_taken[-1] = True, False
    np.greater_equal(np.diff(found), length, out=is_taken[1:-1])
    heads = np.flatnonzero(is_taken)
    if len(heads) == len(found):
        return found
    longest = int(np.diff(np.append(heads, len(found))).max())
    jump = np.append(np.searchsorted(found, found + length), len(found))
    for _ in range(longest.bit_length()):
        is_taken[jump[np.flatnonzero(is_taken)]] = True
        jump = jump[jump]
    return found[is_taken[:-1]]


def escaped_positions(units: CodeUnits, escape: int) -> Positions:
    """Positions of the code units that escapes make literal: behind every other one in a run, the first one included.

    Runs must begin within units. The last position may be one behind them.
    """
    found = positions_of(units == escape)
    is_first = np.diff(found, prepend=-2) > 1
    if not is_first.all():
        first = np.maximum.accumulate(np.where(is_first, found, 0))
        found = found[(found - first) & 1 == 0]
    escaped: Positions = found + 1
    return escaped


Bits = npt.NDArray[np.uint64]
"""A bit for each place, the first one in the lowest position of the first word; those behind the last place are 0."""


def bits_of(hits: npt.NDArray[np.bool_]) -> Bits:
    """True values as bits."""
    packed = np.packbits(hits, bitorder="little")
    packed.resize(max(1, -(-len(packed) // 8)) * 8, refcheck=False)
    return packed.view(np.uint64)


def hits_of(bits: Bits, count: int) -> npt.NDArray[np.bool_]:
    """The first bits as true and false values."""
    return np.unpackbits(bits.view(np.uint8), count=count, bitorder="little").view(np.bool_)


def ones_at(bits: Bits, places: Positions) -> npt.NDArray[np.bool_]:
    """Whether the bits at some places are ones."""
    shifted: Bits = bits[places >> 6] >> (places & 63).astype(np.uint64)
    return (shifted & np.uint64(1)).astype(bool)


def odd_bits(bits: Bits) -> Bits:
    """For each place, whether the number of ones up to it is odd; also for places behind the last one."""
    words = bits.copy()
    for shift in (1, 2, 4, 8, 16, 32):
        words ^= words << np.uint64(shift)
    before = np.bitwise_xor.accumulate(words >> np.uint64(63))[:-1]
    words[1:] ^= np.uint64(0) - before
    return words


def find_newlines(
    units: CodeUnits, is_at_end: bool, line_feed: int = LF, carriage_return: int = CR, escaped: Positions | None = None
) -> Terminators:
    """Find LF, CR LF and CR, as Hadoop's line reader does; codes are indices into NEWLINES.

    A CR that ends the stretch is left out unless the file ends there, because an LF may follow.
    """
    if escaped is None and not contains(units, carriage_return):
        starts = positions_of(units == line_feed)
        return Terminators(starts, starts + 1)
    feeds, returns = bits_of(units == line_feed), bits_of(units == carriage_return)
    if escaped is not None:
        is_escaped = np.zeros(len(units), bool)
        is_escaped[escaped[escaped < len(units)]] = True
        others = ~bits_of(is_escaped)
        feeds, returns = feeds & others, returns & others
    return newlines_of(feeds, returns, len(units), is_at_end)


def newlines_of(feeds: Bits, returns: Bits, count: int, is_at_end: bool) -> Terminators:
    """The newlines among so many code units of which some are LF and CR, as find_newlines gives them."""
    if not returns.any():
        starts = positions_in(feeds)
        return Terminators(starts, starts + 1)
    are_followed = feeds >> np.uint64(1)
    are_followed[:-1] |= feeds[1:] << np.uint64(63)
    last = positions_in(feeds | (returns & ~are_followed))
    if len(last) and last[-1] == count - 1 and not is_at_end and ones_at(returns, last[-1:])[0]:
        last = last[:-1]
    codes = np.where(ones_at(returns, last), 2, ones_at(returns, last - 1) & (last > 0)).astype(np.uint8)
    return Terminators(last - (codes == 1), last + 1, codes)


@frozen
class BackwardSearch:
    """Searches a file backwards from a position."""

    source: ByteSource
    floor: int  # where its first record begins; bytes before it are not read
    unit: CodeUnit = BYTE
    step: int = 64

    def aligned(self, position: int) -> int:
        """The last border of a code unit that is not behind position; at least floor."""
        return max(self.floor, position - (position - self.floor) % self.unit.size)

    def units(self, start: int, end: int) -> CodeUnits:
        """The code units between two borders."""
        return self.unit.view(read_exactly(self.source, start, end))

    def run_start(self, position: int, value: int) -> int:
        """The start of the run of equal code units that ends at position; position if there is none."""
        step = self.step
        while position > self.floor:
            low = self.aligned(position - max(step, self.unit.size))
            others = np.flatnonzero(self.units(low, position) != value)
            if len(others):
                return low + (int(others[-1]) + 1) * self.unit.size
            position, step = low, min(2 * step, CHUNK_BYTES)
        return position

    def before_overlaps(self, place: int, pattern: CodeUnits, escape: int = -1) -> int:
        """The position from which a scan for a pattern that overlaps itself is correct from place on.

        The scan may begin at any position that no occurrence begins less than the pattern's length before: occurrences
        that the scan takes before it end there at the latest. The nearest such position is searched backwards, as far
        as occurrences that share code units follow each other.

        The place is a border of a code unit; every occurrence that begins there or later must be correct. The escape
        makes the next code unit literal, and is not in the pattern.
        """
        size, step = self.unit.size, self.step
        length = len(pattern) * size
        while place > self.floor:
            low = self.aligned(place - max(step, length))
            if escape >= 0:
                low = self.run_start(low, escape)
            units = self.units(low, place + length - size)
            before = occurrences(units, pattern)
            if escape >= 0:
                before = np.setdiff1d(before, escaped_positions(units, escape), assume_unique=True)
            before = before * size + low
            positions = np.append(before[before < place], place)
            apart = np.flatnonzero(np.diff(positions) >= length)
            if len(apart):
                return int(positions[apart[-1] + 1])
            first = int(positions[0])
            if first - low >= length - size or low == self.floor:
                return first
            place, step = first, min(2 * step, CHUNK_BYTES)
        return place


Positions = npt.NDArray[np.int64]

_memchr: Any = None
# On some systems ctypes cannot find the C library in this way.
with contextlib.suppress(OSError, TypeError, AttributeError):
    _memchr = ctypes.CDLL(None).memchr
    _memchr.restype, _memchr.argtypes = ctypes.c_void_p, (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)


def contains(units: npt.NDArray[Any], value: int) -> bool:
    """Whether a code unit occurs.

    For adjacent bytes this is C's memchr: a comparison would write a mask as large as they are,
    and push them out of the cache.
    """
    if _memchr is None or units.dtype != np.uint8 or not units.flags.c_contiguous:
        return bool((units == value).any())
    return _memchr(units.ctypes.data, value, len(units)) is not None


def last_position(hits: npt.NDArray[np.bool_]) -> int:
    """The position of the last true value; -1 if there is none."""
    return len(hits) - 1 - int(np.argmax(hits[::-1])) if hits.any() else -1


_GROUP = 16
"""Number of positions that positions_of examines together; its table has an entry for each combination of them."""

MIN_POSITIONS = 1 << 17
"""For fewer positions, numpy's own search is as fast, or faster."""

_LOWEST = np.zeros(1 << _GROUP, np.uint8)
for _bit in range(_GROUP):
    _LOWEST[1 << _bit :: 2 << _bit] = _bit
_BITS = np.unpackbits(np.arange(1 << _GROUP, dtype="<u2").view(np.uint8).reshape(-1, 2), axis=1).sum(1, np.uint8)


def positions_of(hits: npt.NDArray[np.bool_]) -> Positions:
    """The positions of true values, ascending: as numpy.flatnonzero, in half of the time if few are true."""
    return hits.nonzero()[0] if len(hits) < MIN_POSITIONS else positions_in(bits_of(hits))


def positions_in(bits: Bits) -> Positions:
    """The positions of ones, ascending.

    Between one and nine ones in a hundred, flatnonzero mispredicts a branch at each. Groups of sixteen are so few,
    and hit so often, that it finds those without branches; a table then gives the position within the group.
    """
    groups = bits.view("<u2")
    positions = np.flatnonzero(groups != 0)
    # take looks up the same as square brackets, in two thirds of the time.
    groups = groups.take(positions)
    positions *= _GROUP
    rest = groups & (groups - 1)
    crowded = np.flatnonzero(rest != 0)
    if len(crowded) * 4 > len(positions):
        return np.flatnonzero(hits_of(bits, 64 * len(bits)))
    found: Positions = positions + _LOWEST.take(groups)
    return _with_rest(found, positions, rest, crowded) if len(crowded) else found


def _with_rest(first: Positions, positions: Positions, rest: npt.NDArray[np.uint16], crowded: Positions) -> Positions:
    """Insert the further hits of groups that have several."""
    counts = np.ones(len(first), np.intp)
    counts[crowded] += _BITS[rest[crowded]]
    slots = np.cumsum(counts) - counts
    found = np.empty(int(counts.sum()), np.intp)
    found[slots] = first
    slots, positions, rest = slots[crowded], positions[crowded], rest[crowded]
    while len(rest):
        slots += 1
        found[slots] = positions + _LOWEST[rest]
        rest = rest & (rest - 1)
        left = rest != 0
        slots, positions, rest = slots[left], positions[left], rest[left]
    return found


logger = logging.getLogger(__name__)

LEAST_HOLE = 4
"""The smallest number of NULs that are a hole: in UTF-32 a character has three."""

_FIRST_STEP, _LARGEST_STEP = 4 << 10, 1 << 20


def nuls_from(source: ByteSource, position: int, unit_bytes: int = 1) -> int:
    """The number of NULs from a position of a source on, in whole code units."""
    start, step = position, _FIRST_STEP
    while position < source.size_bytes:
        data = read_exactly(source, position, position + step)
        others = np.flatnonzero(data)
        if len(others):
            position += int(others[0])
            break
        position, step = position + len(data), min(2 * step, _LARGEST_STEP)
    return (position - start) // unit_bytes * unit_bytes


def leading_holes(data: Bytes, starts: Positions, stops: Positions, unit_bytes: int = 1) -> Positions:
    """The length of the hole at the head of each record; 0 where there is none."""
    lengths = np.zeros(len(starts), np.int64)
    rows = np.flatnonzero(stops - starts >= LEAST_HOLE)
    for index in range(LEAST_HOLE):
        rows = rows[data[starts[rows] + index] == 0]
    if len(rows):
        others = np.flatnonzero(data)
        others = np.append(others, len(data))
        ends = np.minimum(others[np.searchsorted(others, starts[rows])], stops[rows])
        lengths[rows] = (ends - starts[rows]) // unit_bytes * unit_bytes
    return lengths


def first_hole(data: Bytes, unit_bytes: int = 1) -> int | None:
    """Where the first hole in a stretch begins; None where it has none. The stretch begins at a code unit."""
    raw, place = data.tobytes(), -1
    while (place := raw.find(bytes(LEAST_HOLE), place + 1)) >= 0:
        if not place % unit_bytes:
            return place
    return None


def has_nul_unit(text: bytes, unit_bytes: int) -> bool:
    """Whether one of the code units of a text is zero."""
    units: npt.NDArray[np.uint8] = np.frombuffer(text, np.uint8).reshape(-1, unit_bytes)
    return bool((units == 0).all(1).any())


def skip_holes(block: BlockMetadata, accounting: ByteAccounting, offsets: Positions, lengths: Positions) -> None:
    """Skip holes that lie in a block, at least one, where records begin."""
    total = int(lengths.sum())
    warn_of_holes(block, int(offsets[0]), total, len(offsets))
    accounting.skip(int(offsets[0]), total, HOLE)


def warn_of_holes(block: BlockMetadata, offset: int, length: int, count: int = 1) -> None:
    """Log that holes were skipped."""
    what = "hole" if count == 1 else f"{count} holes"
    logger.warning("%s of %d NUL bytes skipped url=%s offset=%d", what, length, redacted(block.url), offset)
