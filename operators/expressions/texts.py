"""Functions of text: positions count characters from 1, and patterns are those of RE2."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from dagflow.api.regular_expressions import closed, pieces_of, why_refused
from operators.expressions.sql_types import BOOLEAN, INTEGER, TEXT, is_whole, name_of
from operators.expressions.vectors import Bound, CallSite, applied, typed

_FAR = 1 << 31
"""More characters, and more parts, than a text can have."""


def of_text(kernel: Callable[[Any], Any], kind: pa.DataType = TEXT) -> Callable[[CallSite, Bound], Bound]:
    def bind(site: CallSite, text: Bound) -> Bound:
        return applied(site, kind, kernel, site.text_of(text))

    return bind


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


def trimmed(kernel: Callable[..., Any]) -> Callable[..., Bound]:
    """trim, ltrim and rtrim: spaces, or the characters of a second text, are removed."""

    def bind(site: CallSite, text: Bound, characters: Bound | None = None) -> Bound:
        removed = " " if characters is None else site.written_text(characters, "the characters")
        if not removed:
            return site.text_of(text)
        return applied(site, TEXT, lambda values: kernel(values, characters=removed), site.text_of(text))

    return bind


def _written_place(site: CallSite, argument: Bound, what: str) -> int:
    """The written number of a character or a part; one beyond _FAR is cut to it, because no text has so many."""
    return min(max(site.written_number(argument, what), -_FAR), _FAR)


def substring(site: CallSite, text: Bound, start: Bound, count: Bound | None = None) -> Bound:
    """At most count characters from start on, which counts from 1, and from the end where it is negative."""
    first = _written_place(site, start, "the start")
    size = None if count is None else _written_place(site, count, "the length")
    return applied(site, TEXT, lambda values: _substring(values, first, size), site.text_of(text))


def _substring(values: Any, first: int, size: int | None) -> Any:
    if size is not None and size <= 0:
        return _sliced(values, 0, 0)
    if first >= 0:
        begin = max(first - 1, 0)
        return _sliced(values, begin, None if size is None else begin + size)
    # A start before the first character counts, so that less of the text is left.
    return _sliced(values, first, None if size is None or first + size >= 0 else first + size)


def _sliced(values: Any, start: int, stop: int | None) -> Any:
    return pc.utf8_slice_codeunits(values, start, stop)


def left(site: CallSite, text: Bound, count: Bound) -> Bound:
    size = max(_written_place(site, count, "the length"), 0)
    return applied(site, TEXT, lambda values: _sliced(values, 0, size), site.text_of(text))


def right(site: CallSite, text: Bound, count: Bound) -> Bound:
    size = max(_written_place(site, count, "the length"), 0)

    def kernel(values: Any) -> Any:
        return _sliced(values, -size, None) if size else _sliced(values, 0, 0)

    return applied(site, TEXT, kernel, site.text_of(text))


def padded(kernel: Callable[..., Any]) -> Callable[..., Bound]:
    """Lpad and rpad: the text padded to a number of characters, or cut to it."""

    def bind(site: CallSite, text: Bound, width: Bound, padding: Bound | None = None) -> Bound:
        size = max(site.written_number(width, "the length"), 0)
        filler = " " if padding is None else site.written_text(padding, "the padding")
        if len(filler) != 1:
            raise site.error(f"{site.name} pads with one character", padding)
        return applied(site, TEXT, lambda values: _sliced(kernel(values, size, filler), 0, size), site.text_of(text))

    return bind


def replace(site: CallSite, text: Bound, search: Bound, replacement: Bound | None = None) -> Bound:
    """The text with each occurrence of another text replaced, or removed."""
    pattern = site.written_text(search, "the text to search for")
    new = "" if replacement is None else site.written_text(replacement, "the replacement")
    if not pattern:
        return site.text_of(text)
    return applied(site, TEXT, lambda values: pc.replace_substring(values, pattern, new), site.text_of(text))


def repeat(site: CallSite, text: Bound, count: Bound) -> Bound:
    site.require(count, is_whole, "a number of times")
    if pa.types.is_null(count.type):
        return typed(text, TEXT)

    def compute(values: Any, times: Any) -> Any:
        return pc.binary_repeat(values, pc.max_element_wise(times, pa.scalar(0, times.type), skip_nulls=False))

    return applied(site, TEXT, compute, site.text_of(text), count)


def matching(kernel: Callable[..., Any]) -> Callable[[CallSite, Bound, Bound], Bound]:
    def bind(site: CallSite, text: Bound, part: Bound) -> Bound:
        pattern = site.written_text(part, "the text to search for")
        return applied(site, BOOLEAN, lambda values: kernel(values, pattern=pattern), site.text_of(text))

    return bind


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


def matches_regex(site: CallSite, text: Bound, pattern: Bound) -> Bound:
    """Text rlike pattern: whether the pattern matches somewhere."""
    regex = _checked(site, pattern)
    return applied(site, BOOLEAN, lambda values: pc.match_substring_regex(values, regex), site.text_of(text))


def regexp_replace(site: CallSite, text: Bound, pattern: Bound, replacement: Bound) -> Bound:
    r"""The text with each match replaced; \1 in the replacement is the first group."""
    regex, new = _checked(site, pattern), site.written_text(replacement, "the replacement")
    try:
        pc.replace_substring_regex(pa.array([""]), regex, new)
    except pa.ArrowInvalid as error:
        raise site.error(f"the replacement of {site.name}: {error}", replacement) from None
    return applied(site, TEXT, lambda values: pc.replace_substring_regex(values, regex, new), site.text_of(text))


def regexp_extract(site: CallSite, text: Bound, pattern: Bound, group: Bound | None = None) -> Bound:
    """A group of the first match, the first one if none is named; empty where nothing matches."""
    regex = _checked(site, pattern)
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


def _checked(site: CallSite, pattern: Bound) -> str:
    regex = site.written_text(pattern, "the pattern")
    _require_valid(site, regex, pattern)
    return regex


def _require_valid(site: CallSite, regex: str, pattern: Bound) -> None:
    if (refused := why_refused(regex)) is not None:
        raise site.error(refused[0], pattern)


def position(site: CallSite, text: Bound, part: Bound) -> Bound:
    """Where a text begins in another, counted from 1; 0 where it does not occur."""
    pattern = site.written_text(part, "the text to search for")

    def compute(values: Any) -> Any:
        if not pattern:
            return pc.if_else(pc.is_valid(values), pa.scalar(1, INTEGER), pa.scalar(None, INTEGER))
        before = _element(pc.split_pattern(values, pattern, max_splits=1), 1)
        place = pc.add(length(before), pa.scalar(1, INTEGER))
        return pc.if_else(pc.match_substring(values, pattern), place, pa.scalar(0, INTEGER))

    return applied(site, INTEGER, compute, site.text_of(text))


def split_part(site: CallSite, text: Bound, separator: Bound, number: Bound) -> Bound:
    """The part of this number between separators, counted from 1, or from the end; empty where there is none."""
    pattern = site.written_text(separator, "the separator")
    wanted = _written_place(site, number, "the number")
    if not wanted:
        raise site.error("parts are counted from 1, or from -1 at the end", number)
    if not pattern:
        raise site.error("the separator of split_part is empty", separator)
    return applied(site, TEXT, lambda values: _part(values, pattern, wanted), site.text_of(text))


def _part(values: Any, pattern: str, wanted: int) -> Any:
    return _element(pc.split_pattern(values, pattern), wanted)


def _element(lists: Any, wanted: int) -> Any:
    """An element of each list, by its number; empty where there is none."""
    if isinstance(lists, pa.Scalar):
        return _element(pa.array([lists.as_py()], lists.type), wanted)[0]
    starts, ends = (np.asarray(side, np.int64) for side in (lists.offsets[:-1], lists.offsets[1:]))
    positions = starts + wanted - 1 if wanted > 0 else ends + wanted
    is_there = (positions >= starts) & (positions < ends)
    found = lists.values.take(pa.array(positions, mask=~is_there))
    return pc.if_else(pc.is_valid(lists), pc.fill_null(found, ""), pa.scalar(None, TEXT))
