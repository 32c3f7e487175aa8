"""Names of rotated files: the names that a file may have had before a log rotation."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dagflow.late import compute as pc
from dagflow.storage.columns import binary_column, flags_of
from operators.files.compression import COMPRESSIONS

MAX_SHIFTS = 3
"""How many rotations back the number in a name is counted: several may come between two scans."""

MOST_SHIFTS = 400
"""The same where other evidence than the names supports it: a year of daily rotations."""

_SUFFIXES = "|".join(re.escape(suffix) for compression in COMPRESSIONS for suffix in compression.suffixes)
_COMPRESSED = re.compile(f"(.+)(?:{_SUFFIXES})".encode(), re.DOTALL | re.IGNORECASE)
_NUMBERS = r"[.\-_][0-9][0-9.:_TW+\-]*Z?"
_SET_ASIDE = r"[.\-_](?:old|bak|prev|save|orig|last)"
_ADDED = rf"(?:{_NUMBERS}|{_SET_ASIDE})"
_EXTENSION = r"\.[A-Za-z][^./]*"
_ENDS_SET_ASIDE = re.compile(f".*{_SET_ASIDE}(?:{_EXTENSION})?".encode(), re.DOTALL)
# Each pattern takes the longest beginning: the earlier name may itself end in a number.
_ADDED_ENDS = (rf"{_ADDED}()", rf"{_ADDED}({_EXTENSION})")
_WITHOUT_ADDED = [re.compile(f"(.+){end}".encode(), re.DOTALL) for end in _ADDED_ENDS]
_NUMBERED = re.compile(rb"(.+[.\-_])([0-9]{1,4})", re.DOTALL)
_ROTATED_END = rf"[^/](?:{_ADDED}(?:{_EXTENSION})?|(?i:{_SUFFIXES}))$"
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
    return _in_both_directories(path, _earlier_names)


def _in_both_directories(path: bytes, names_before: Callable[[bytes], Iterator[bytes]]) -> list[bytes]:
    directory, _, name = path.rpartition(b"/")
    above = directory.rpartition(b"/")[0]
    earlier = dict.fromkeys(names_before(name))
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
    yield from _lower_numbers(bare)
    yield from _without_ends(bare)


def _lower_numbers(name: bytes, shifts: int = MAX_SHIFTS, lowest: Iterable[int] = ()) -> Iterator[bytes]:
    """The name with each number that may have been at its end some rotations ago, or was the lowest one."""
    if numbered := _NUMBERED.fullmatch(name):
        number = int(numbered[2])
        # The number of a year does not come from so many rotations.
        far = (before for before in lowest if before < number <= before + MOST_SHIFTS)
        for before in (*range(number - 1, max(-1, number - 1 - shifts), -1), *far):
            yield numbered[1] + b"%d" % before


def _without_ends(name: bytes) -> Iterator[bytes]:
    for pattern in _WITHOUT_ADDED:
        yield from reversed(list(_shortened(name, pattern)))


def _shortened(name: bytes, pattern: re.Pattern[bytes]) -> Iterator[bytes]:
    """A name without the last part that a rotation may have added, without the last two parts, and so on."""
    while match := pattern.fullmatch(name):
        name = match[1] + match[2]
        yield name


def is_set_aside(path: bytes) -> bool:
    """Whether a name says that people keep what another file was; a number, a date or a compression is of programs."""
    return _ENDS_SET_ASIDE.fullmatch(path) is not None


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
    is_known = np.zeros(len(paths), bool)
    rows = np.flatnonzero(flags_of(pc.match_substring_regex(binary_column(paths), _ROTATED_END))).tolist()
    earlier = {row: _in_both_directories(paths[row], _suspected_names) for row in rows}
    if asked := sorted(set(itertools.chain.from_iterable(earlier.values()))):
        known = are_known(asked)
        is_known[[row for row, before in earlier.items() if not known.isdisjoint(before)]] = True
    return is_known


def _suspected_names(name: bytes) -> Iterator[bytes]:
    bare = uncompressed(name)
    if bare != name:
        yield bare
        yield from _lower_numbers(bare, MAX_SHIFTS + 1, _LOWEST_NUMBERS)
    yield from _without_ends(bare)
