"""Functions of text: positions count characters from 1, and patterns are those of RE2."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa

from dagflow.api.regular_expressions import closed, pieces_of, why_refused
from dagflow.late import compute as pc
from operators.expressions.sql_types import BOOLEAN, INTEGER, TEXT, is_whole, name_of
from operators.expressions.vectors import Argument, Bound, CallSite, applied

_FAR = 1 << 31
"""More characters, and more parts, than a text can have."""


def length(values: Any) -> Any:
    return pc.cast(pc.utf8_length(values), INTEGER)


def concat(site: CallSite, *texts: Bound) -> Bound:
    """The texts, one behind the other; null where one is null."""
    checked = [_joinable(site, each) for each in texts]
    return applied(site, TEXT, lambda *values: pc.binary_join_element_wise(*values, ""), *checked)


def _joinable(site: CallSite, text: Bound) -> Bound:
    if not pa.types.is_null(text.type) and text.type != TEXT:
        raise site.error(f"{site.name} joins text, and this is {name_of(text.type)}; cast it as text", text)
    return site.text_of(text)


def trimmed(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """trim, ltrim and rtrim: spaces, or the characters of a second text, are removed."""
    return lambda values, characters=" ": kernel(values, characters=characters) if characters else values


def written_place(what: str) -> Argument:
    """The written number of a character or a part; one beyond _FAR is cut to it, because no text has so many."""
    return lambda site, argument: min(max(site.written_number(argument, what), -_FAR), _FAR)


def substring(values: Any, first: int, size: int | None = None) -> Any:
    """At most size characters from the first one on, which counts from 1, and from the end where it is negative."""
    if size is not None and size <= 0:
        return _sliced(values, 0, 0)
    if first >= 0:
        begin = max(first - 1, 0)
        return _sliced(values, begin, None if size is None else begin + size)
    # A start before the first character counts, so that less of the text is left.
    return _sliced(values, first, None if size is None or first + size >= 0 else first + size)


def _sliced(values: Any, start: int, stop: int | None) -> Any:
    return pc.utf8_slice_codeunits(values, start, stop)


def left(values: Any, size: int) -> Any:
    return _sliced(values, 0, max(size, 0))


def right(values: Any, size: int) -> Any:
    return _sliced(values, -size, None) if size > 0 else _sliced(values, 0, 0)


def padded(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Lpad and rpad: the text padded to a number of characters, or cut to it."""
    return lambda values, width, padding=" ": left(kernel(values, width, padding), width)


def written_width(site: CallSite, argument: Bound) -> int:
    return max(site.written_number(argument, "the length"), 0)


def written_padding(site: CallSite, argument: Bound) -> str:
    padding = site.written_text(argument, "the padding")
    if len(padding) != 1:
        raise site.error(f"{site.name} pads with one character", argument)
    return padding


def replace(values: Any, search: str, replacement: str = "") -> Any:
    """The text with each occurrence of another text replaced, or removed."""
    return pc.replace_substring(values, search, replacement) if search else values


def number_of_times(site: CallSite, argument: Bound) -> Bound:
    return site.require(argument, is_whole, "a number of times", INTEGER)


def repeat(values: Any, times: Any) -> Any:
    return pc.binary_repeat(values, pc.max_element_wise(times, pa.scalar(0, times.type), skip_nulls=False))


def like(*, ignore_case: bool) -> Callable[..., Bound]:
    """Like and ilike: % stands for any characters, _ for one, and a backslash makes the next one literal."""

    def bind(site: CallSite, text: Bound, pattern: Bound, escape: Bound | None = None) -> Bound:
        written = site.written_text(pattern, "the pattern")
        mark = "\\" if escape is None else site.written_text(escape, "the escape")
        if len(mark) != 1:
            raise site.error("the escape of like is one character", escape)
        regex = _regex_of(written, mark)
        if regex is None:
            raise site.error(f"the pattern of {site.name}: {mark!r} precedes a character that needs no escape", pattern)
        prefix = "(?is)" if ignore_case else "(?s)"
        return applied(
            site, BOOLEAN, lambda values: pc.match_substring_regex(values, f"{prefix}^{regex}$"), site.text_of(text)
        )

    return bind


def _regex_of(pattern: str, escape: str) -> str | None:
    """The regular expression of a pattern of like; None if an escape precedes a character that needs none."""
    found, index = "", 0
    while index < len(pattern):
        letter = pattern[index]
        if letter == escape:
            index += 1
            if pattern[index : index + 1] not in ("%", "_", escape):
                return None
            found += re.escape(pattern[index])
        else:
            found += {"%": ".*", "_": "."}.get(letter) or re.escape(letter)
        index += 1
    return found.replace(r"\ ", " ")


def regexp_replace(site: CallSite, text: Bound, pattern: Bound, replacement: Bound) -> Bound:
    r"""The text with each match replaced; \1 in the replacement is the first group."""
    regex, new = written_regex(site, pattern), site.written_text(replacement, "the replacement")
    try:
        pc.replace_substring_regex(pa.array([""]), regex, new)
    except pa.ArrowInvalid as error:
        raise site.error(f"the replacement of {site.name}: {error}", replacement) from None
    return applied(site, TEXT, lambda values: pc.replace_substring_regex(values, regex, new), site.text_of(text))


def regexp_extract(site: CallSite, text: Bound, pattern: Bound, group: Bound | None = None) -> Bound:
    """A group of the first match, the first one if none is named; empty where nothing matches."""
    regex = written_regex(site, pattern)
    number = 1 if group is None else site.written_number(group, "the group")
    pieces = pieces_of(closed(regex))
    groups = [index for index, piece in enumerate(pieces) if _opens_group(piece)]
    if not 0 <= number <= len(groups):
        raise site.error(
            f"the pattern of {site.name} has {len(groups)} groups, and number {number} is asked for", group
        )
    named = _with_name(pieces, groups, number)
    _require_valid(site, named, pattern)

    def compute(values: Any) -> Any:
        found = pc.struct_field(pc.extract_regex(values, named), "found")
        return pc.if_else(pc.is_valid(values), pc.fill_null(found, ""), pa.scalar(None, TEXT))

    return applied(site, TEXT, compute, site.text_of(text))


def _opens_group(piece: str) -> bool:
    return piece == "(" or piece.startswith(("(?P<", "(?<"))


def _with_name(pieces: list[str], groups: list[int], number: int) -> str:
    """The expression of some pieces with only its group of this number named, `found`; 0 is all of it.

    Arrow gives named groups alone.
    """
    made = list(pieces)
    for count, index in enumerate(groups, 1):
        made[index] = "(?P<found>" if count == number else "(?:"
    return f"(?P<found>{''.join(made)})" if number == 0 else "".join(made)


def written_regex(site: CallSite, pattern: Bound) -> str:
    regex = site.written_text(pattern, "the pattern")
    _require_valid(site, regex, pattern)
    return regex


def _require_valid(site: CallSite, regex: str, pattern: Bound) -> None:
    if (refused := why_refused(regex)) is not None:
        raise site.error(refused[0], pattern)


def position(values: Any, part: str) -> Any:
    """Where a text begins in another, counted from 1; 0 where it does not occur."""
    if not part:
        return pc.if_else(pc.is_valid(values), pa.scalar(1, INTEGER), pa.scalar(None, INTEGER))
    before = _element(pc.split_pattern(values, part, max_splits=1), 1)
    place = pc.add(length(before), pa.scalar(1, INTEGER))
    return pc.if_else(pc.match_substring(values, part), place, pa.scalar(0, INTEGER))


def split_part(site: CallSite, text: Bound, separator: Bound, number: Bound) -> Bound:
    """The part of this number between separators, counted from 1, or from the end; empty where there is none."""
    pattern = site.written_text(separator, "the separator")
    wanted = written_place("the number")(site, number)
    if not wanted:
        raise site.error("parts are counted from 1, or from -1 at the end", number)
    if not pattern:
        raise site.error("the separator of split_part is empty", separator)
    return applied(site, TEXT, lambda values: _element(pc.split_pattern(values, pattern), wanted), site.text_of(text))


def _element(lists: Any, wanted: int) -> Any:
    """An element of each list, by its number; empty where there is none."""
    if isinstance(lists, pa.Scalar):
        return _element(pa.array([lists.as_py()], lists.type), wanted)[0]
    starts, ends = (np.asarray(side, np.int64) for side in (lists.offsets[:-1], lists.offsets[1:]))
    positions = starts + wanted - 1 if wanted > 0 else ends + wanted
    is_there = (positions >= starts) & (positions < ends)
    found = lists.values.take(pa.array(positions, mask=~is_there))
    return pc.if_else(pc.is_valid(lists), pc.fill_null(found, ""), pa.scalar(None, TEXT))
