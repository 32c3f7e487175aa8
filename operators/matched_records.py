r"""Matches regular expressions in bytes that are usually text.

RE2 reads pattern and values of bytes as Latin-1, where é is two characters: [éè] also finds à, and ^.$ does not find ñ.
"""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
from pydantic import AfterValidator

from dagflow.api.properties import PropertyTextError, shown_text
from dagflow.api.regular_expressions import Pattern
from dagflow.late import compute as pc
from dagflow.storage.columns import is_ascii

_NO_TEXT = b"\xff"
_TEXT = (
    r"\A(?:[\x00-\x7f]|[\xc2-\xdf][\x80-\xbf]|\xe0[\xa0-\xbf][\x80-\xbf]|\xed[\x80-\x9f][\x80-\xbf]"
    r"|[\xe1-\xec\xee\xef][\x80-\xbf]{2}|\xf0[\x90-\xbf][\x80-\xbf]{2}|[\xf1-\xf3][\x80-\xbf]{3}"
    r"|\xf4[\x80-\x8f][\x80-\xbf]{2})*\z"
)


def _for_bytes(regex: str) -> str:
    try:
        matches(pa.array([_NO_TEXT]), regex)
    except pa.ArrowInvalid as error:
        reason = f"{error}, for a record that is no text; write characters as they are"
        raise PropertyTextError(f"{shown_text(regex)} is not a valid RE2 expression: {reason}", regex, 0) from None
    return regex


RecordPattern = Annotated[Pattern, AfterValidator(_for_bytes)]
"""A regular expression that RE2 takes for characters, and for bytes."""


def matches(values: pa.Array, regex: str) -> pa.BooleanArray:
    """Find for each value whether an expression matches somewhere in it; null for a null.

    A value in UTF-8 is matched by its characters. Any other is matched byte by byte, whatever is beside it: how records
    are batched changes no result.

    Args:
        values: Bytes or text.
        regex: The expression, of RE2.

    Raises:
        pa.ArrowInvalid: The expression is not valid.
    """
    if pa.types.is_binary(values.type) and is_ascii(values):
        # Arrow would check each value by itself, which takes a third of the time of the match.
        return pc.match_substring_regex(values.view(pa.string()), pattern=regex)
    try:
        texts = pc.cast(values, pa.string())  # without a copy
    except pa.ArrowInvalid:
        is_text = pc.match_substring_regex(values, pattern=_TEXT)
        texts = pc.cast(pc.if_else(is_text, values, b""), pa.string())
        found = pc.match_substring_regex(texts, pattern=regex)
        return pc.if_else(is_text, found, pc.match_substring_regex(values, pattern=regex))
    return pc.match_substring_regex(texts, pattern=regex)
