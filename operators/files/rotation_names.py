"""Names of rotated files: the names that a file may have had before a log rotation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagflow.storage.columns import binary_column, flags_of, positions_in
from operators.files.compression import COMPRESSIONS

MAX_SHIFTS = 3
"""How many rotations back the number in a name is counted: several may come between two scans."""

MOST_SHIFTS = 400
"""The same where other evidence than the names supports it: a year of daily rotations."""

_SUFFIXES = "|".join(re.escape(suffix) for compression in COMPRESSIONS for suffix in compression.suffixes)
_COMPRESSED = re.compile(f"(.+)(?:{_SUFFIXES})".encode(), re.DOTALL | re.IGNORECASE)
_NUMBERS = r"[.\-_][0-9][0-9.:_TW+\-]*Z?"
_ADDED = rf"(?:{_NUMBERS}|[.\-_](?:old|bak|prev|save|orig|last))"
_EXTENSION = r"\.[A-Za-z][^./]*"
# Each pattern takes the longest beginning: the earlier name may itself end in a number.
_ADDED_ENDS = (rf"{_ADDED}()", rf"{_ADDED}({_EXTENSION})")
_WITHOUT_ADDED = [re.compile(f"(.+){end}".encode(), re.DOTALL) for end in _ADDED_ENDS]
_NUMBERED = re.compile(rb"(.+[.\-_])([0-9]{1,4})", re.DOTALL)
_NUMBERED_END = r"[^/][.\-_][0-9]{1,4}$"
_COMPRESSED_END = rf"(?i)(?:{_SUFFIXES})$"
_NUMBERS_A_STEM = 10_000
_NONE = np.empty(0, np.intp)
_LOWEST_NUMBERS = (0, 1)
"""Numbers of files that stay uncompressed until the next rotation."""


def uncompressed(name: bytes) -> bytes:
    """The name without the suffix of a compression; the name itself where it has none."""
    match = _COMPRESSED.fullmatch(name)
    return match[1] if match else name


def earlier_paths(path: bytes) -> list[bytes]:
    """The paths that a file may have had before rotations gave it this one, the likeliest first.

    `app.log.1`, `app.log-20261123`, `app-20261123.log` and `app.log.old` may have been `app.log`; with a suffix
    of a compression they may also have been the same without it. A name that ends in a number may have ended in a
    lower one. A directory for rotated files may lie beside the log.
    """
    directory, _, name = path.rpartition(b"/")
    above = directory.rpartition(b"/")[0]
    earlier = dict.fromkeys(_earlier_names(name))
    return [place + b"/" + name for place in dict.fromkeys((directory, above)) for name in earlier if place or above]


def farther_paths(path: bytes) -> list[bytes]:
    """The paths that a compressed file may have had, uncompressed, more than MAX_SHIFTS rotations ago, newest first."""
    directory, _, name = path.rpartition(b"/")
    bare = uncompressed(name)
    numbered = _NUMBERED.fullmatch(bare)
    if bare == name or numbered is None:
        return []
    number = int(numbered[2])
    shifts = range(MAX_SHIFTS + 1, min(number, MOST_SHIFTS) + 1)
    return [directory + b"/" + numbered[1] + b"%d" % (number - shift) for shift in shifts]


def _earlier_names(name: bytes) -> Iterator[bytes]:
    bare = uncompressed(name)
    if bare != name:
        yield bare
    if numbered := _NUMBERED.fullmatch(bare):
        number = int(numbered[2])
        for before in range(number - 1, max(-1, number - 1 - MAX_SHIFTS), -1):
            yield numbered[1] + b"%d" % before
    for pattern in _WITHOUT_ADDED:
        yield from reversed(list(_shortened(bare, pattern)))


def _shortened(name: bytes, pattern: re.Pattern[bytes]) -> Iterator[bytes]:
    """A name without the last part that a rotation may have added, without the last two parts, and so on."""
    while match := pattern.fullmatch(name):
        name = match[1] + match[2]
        yield name


def is_shifted(path: bytes, before: bytes) -> bool:
    """Whether two paths, one of which is among the earlier_paths() of the other, differ only in the last number."""
    number, other = (_NUMBERED.fullmatch(place.rpartition(b"/")[2]) for place in (path, before))
    return number is not None and other is not None and number[1] == other[1]


def rotated(paths: Sequence[bytes], are_known: Callable[[Sequence[bytes]], set[bytes]]) -> npt.NDArray[np.bool_]:
    """For each of many paths, whether an earlier path of the rotated file is known.

    Earlier paths are those of earlier_paths(), but lower numbers count only for compressed files: other files seldom
    get another inode when they are given a higher number, and then the log is known as well. Only the lowest numbers of
    farther_paths() are looked for.
    """
    every = binary_column(paths)
    compressed = np.flatnonzero(_matches(every, f"[^/]{_COMPRESSED_END}"))
    bare = pc.replace_substring_regex(every, _COMPRESSED_END, "") if len(compressed) else every
    start = _Names(bare)
    levels = [start.derived(compressed, bare.take(compressed)), _with_lower_numbers(start, compressed)]
    for end in _ADDED_ENDS:
        level = start
        while len((level := level.without(end)).names):
            levels.append(level)
    # Millions of numbered files have few names without their numbers.
    distinct = {path for level in levels for path in level.names.to_pylist()}
    known = are_known(sorted({*distinct, *map(_above, distinct)})) if distinct else set()
    if wanted := [path for path in distinct if path in known or _above(path) in known]:
        column = binary_column(wanted)
        for level in reversed(levels):
            level.mark(column)
    return start.is_known


class _Names:
    """Names derived from those of files, each once, and whether a file is known under one or one derived from it.

    Args:
        names: The names.
        before: The names that these are derived from; None for the files' own names.
        rows: Rows of `before`, each as often as names are derived from it.
        positions: The positions in `names` of the names derived from these rows.
    """

    def __init__(
        self,
        names: pa.Array | pa.ChunkedArray,
        before: _Names | None = None,
        rows: npt.NDArray[np.integer] = _NONE,
        positions: npt.NDArray[np.integer] = _NONE,
    ) -> None:
        self.names = names
        self.is_known = np.zeros(len(names), bool)
        self._before = before
        self._rows = rows
        self._positions = positions

    def derived(self, rows: npt.NDArray[np.integer], names: pa.Array | pa.ChunkedArray) -> _Names:
        distinct = pc.unique(names)
        return _Names(distinct, self, rows, positions_in(names, distinct)[1])

    def without(self, end: str) -> _Names:
        """The names without a suffix that the pattern matches; other names derive nothing."""
        chosen = np.flatnonzero(_matches(self.names, f"[^/]{end}$"))
        names = self.names.take(chosen)
        return self.derived(chosen, pc.replace_substring_regex(names, f"^((?s:.*[^/])){end}$", r"\1\2"))

    def mark(self, known: pa.Array) -> None:
        """Mark the names that are known, and those that they are derived from; to be called in reverse order."""
        self.is_known |= positions_in(self.names, known)[0]
        if self._before is not None:
            self._before.is_known[self._rows[self.is_known[self._positions]]] = True


def _with_lower_numbers(start: _Names, compressed: npt.NDArray[np.integer]) -> _Names:
    """The names derived from compressed names that end in a number."""
    names = start.names.take(compressed)
    is_numbered = np.flatnonzero(_matches(names, _NUMBERED_END))
    names, rows = names.take(is_numbered), compressed[is_numbered]
    stems = pc.replace_substring_regex(names, "[0-9]{1,4}$", "")
    distinct = pc.unique(stems)
    stem_of = positions_in(stems, distinct)[1].astype(np.int64)
    ends = pc.replace_substring_regex(names, r"^(?s:.*[.\-_])", "").to_pylist()
    numbers = np.fromiter(map(int, ends), np.int64, len(ends))
    lower = [numbers - 1 - shift for shift in range(MAX_SHIFTS + 1)]
    lower += [np.full(len(numbers), lowest) for lowest in _LOWEST_NUMBERS]
    # The number of a year does not come from so many rotations.
    is_lower = np.concatenate([(below >= 0) & (below < numbers) & (numbers - below <= MOST_SHIFTS) for below in lower])
    pairs = np.concatenate([stem_of * _NUMBERS_A_STEM + below for below in lower])[is_lower]
    asked, positions = np.unique(pairs, return_inverse=True)
    stem_names = distinct.to_pylist()
    names = [
        stem_names[stem] + b"%d" % number for stem, number in (divmod(pair, _NUMBERS_A_STEM) for pair in asked.tolist())
    ]
    return _Names(binary_column(names), start, np.tile(rows, len(lower))[is_lower], positions)


def _matches(names: pa.Array | pa.ChunkedArray, pattern: str) -> npt.NDArray[np.bool_]:
    return flags_of(pc.match_substring_regex(names, pattern))


def _above(path: bytes) -> bytes:
    """The path of the file of the same name in the directory above."""
    directory, _, name = path.rpartition(b"/")
    return directory.rpartition(b"/")[0] + b"/" + name
