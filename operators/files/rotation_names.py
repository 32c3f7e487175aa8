"""Names of rotated files: under which names a file may have been before a log rotation."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from dagflow.storage.columns import binary_column, positions_in
from operators.files.compression import COMPRESSIONS

MAX_SHIFTS = 3
"""How many rotations back the number in a name is counted: several may come between two scans."""

MOST_SHIFTS = 400
"""The same where more than the names speaks for it: a year of daily rotations."""

_SUFFIXES = "|".join(re.escape(suffix) for compression in COMPRESSIONS for suffix in compression.suffixes)
_COMPRESSED = re.compile(f"(.+)(?:{_SUFFIXES})".encode(), re.DOTALL | re.IGNORECASE)
_NUMBERS = r"[.\-_][0-9][0-9.:_T+\-]*"
_ADDED = rf"{_NUMBERS}|[.\-_](?:old|bak|prev|save|orig|last)"
_INSERTED = rf"{_NUMBERS}(\.[A-Za-z][^./]*)"
# Each takes the shortest beginning, or the longest: both may be the name that the file had.
_BEFORE = (re.compile(f"(.+?)(?:{_ADDED})".encode(), re.DOTALL), re.compile(f"(.+)(?:{_ADDED})".encode(), re.DOTALL))
_AROUND = re.compile(f"(.+?){_INSERTED}".encode(), re.DOTALL)
_NUMBERED = re.compile(rb"(.+[.\-_])(\d{1,4})", re.DOTALL)
_COMPRESSED_END = rf"(?i)(?:{_SUFFIXES})$"
_ROTATED_ENDS = ((f"(?:{_ADDED})$", ""), (f"{_INSERTED}$", r"\1"))


def uncompressed(name: bytes) -> bytes:
    """The name without the suffix of a compression; the name itself where it has none."""
    found = _COMPRESSED.fullmatch(name)
    return found[1] if found else name


def earlier_paths(path: bytes) -> list[bytes]:
    """The paths that a file may have had before rotations gave it this one, the likeliest first.

    `app.log.1`, `app.log-20261123`, `app-20261123.log` and `app.log.old` may have been `app.log`; with a suffix
    of a compression they may also have been the same without it. A directory for rotated files may lie beside the log.
    """
    directory, _, name = path.rpartition(b"/")
    above = directory.rpartition(b"/")[0]
    found = dict.fromkeys(_earlier_names(name))
    return [place + b"/" + each for place in dict.fromkeys((directory, above)) for each in found if place or above]


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
    for pattern in _BEFORE:
        if found := pattern.fullmatch(bare):
            yield found[1]
    if found := _AROUND.fullmatch(bare):
        yield found[1] + found[2]


def rotated(paths: Sequence[bytes], are_known: Callable[[Sequence[bytes]], set[bytes]]) -> npt.NDArray[np.bool_]:
    """For each of many paths whether one that a rotated file may have had before is known.

    Args:
        paths: The paths.
        are_known: Those of some paths that are known.
    """
    found = np.zeros(len(paths), bool)
    forms: list[tuple[npt.NDArray[np.intp], pa.Array]] = []
    every, column = np.arange(len(paths)), binary_column(paths)
    compressed = _without_end(every, column, _COMPRESSED_END, "")
    forms.append(compressed)
    for rows, names in ((every, column), compressed):
        forms += [_without_end(rows, names, end, kept) for end, kept in _ROTATED_ENDS]
    # Millions of numbered files have few names without their numbers.
    distinct = {path for _, names in forms for path in pc.unique(names).to_pylist()}
    known = are_known(sorted({*distinct, *map(_above, distinct)})) if distinct else set()
    if wanted := [path for path in distinct if path in known or _above(path) in known]:
        for rows, names in forms:
            found[rows[positions_in(names, binary_column(wanted))[0]]] = True
    return found


def _without_end(
    rows: npt.NDArray[np.intp], names: pa.Array, end: str, kept: str
) -> tuple[npt.NDArray[np.intp], pa.Array]:
    """The rows whose names have such an end, and their names without it."""
    # Most names have none, and to look for it takes a tenth of the time.
    has_end = pc.match_substring_regex(names, end)
    chosen = np.flatnonzero(np.array(has_end.to_pylist(), bool))
    return rows[chosen], pc.replace_substring_regex(names.filter(has_end), end, kept)


def _above(path: bytes) -> bytes:
    """The path of a file of the same name in the directory above."""
    directory, _, name = path.rpartition(b"/")
    return directory.rpartition(b"/")[0] + b"/" + name
