"""Reads and writes the text of the column `_rescued`."""

from __future__ import annotations

import base64
import contextlib
import json
import re
from collections.abc import Iterable, Mapping
from math import isfinite
from typing import Any

import pyarrow as pa

RESCUED = "_rescued"
"""The column for values that do not fit into others: JSON of name and value, with file and offset."""

FILE, OFFSET = "_file", "_offset"
"""The members for file and offset of the record of rescued values."""


_LIKE_A_PLACE = re.compile("_+(file|offset)")
"""Names of values that get one more underscore in the text, so that none is the name of the origin."""


def rescued_text(values: Mapping[str, Any], file: str | None, offset: int | None, before: str | None = None) -> str:
    """Rescued values by name as JSON; values that JSON has no form for become text, and bytes base64.

    Args:
        values: The values.
        file: The file of their record; None where that is not known.
        offset: The offset of their record; None where that is not known.
        before: The text of other values of the record that were rescued before.
    """
    return _text({**_members_in(before or "{}"), **_named(values), FILE: file, OFFSET: offset})


def place_in(text: str, values: Mapping[str, Any]) -> str:
    """The text of other values of the record of a text."""
    members = _members_in(text)
    return _text({**_named(values), **{name: members.get(name) for name in (FILE, OFFSET)}})


def renamed_values(text: str, names: Iterable[tuple[str, str]]) -> str | None:
    """The text with values under other names; None where none is left.

    Args:
        text: The text.
        names: Pairs of the name of a value, and of one that it gets; values without any are left out.
    """
    values = rescued_values(text)
    values = {new: values[name] for name, new in names if name in values}
    return place_in(text, values) if values else None


def _named(values: Mapping[str, Any]) -> dict[str, Any]:
    return {f"_{name}" if _LIKE_A_PLACE.fullmatch(name) else name: value for name, value in values.items()}


def _text(members: Mapping[str, Any]) -> str:
    return json.dumps(_held(members), ensure_ascii=False, default=_as_text)


def _held(value: Any) -> Any:
    """A value in which numbers that JSON lacks are text, wherever they are."""
    match value:
        case float() if not isfinite(value):
            return str(value)
        case dict():
            return {name: _held(member) for name, member in value.items()}
        case list() | tuple():
            return [*map(_held, value)]
        case _:
            return value


def rescued_values(text: str) -> dict[str, Any]:
    """The values by name in a text of rescued_text(), as JSON values."""
    named = {name: value for name, value in _members_in(text).items() if name not in (FILE, OFFSET)}
    return {name[1:] if _LIKE_A_PLACE.fullmatch(name) else name: value for name, value in named.items()}


def require_text_of_rescued(schema: pa.Schema) -> None:
    """Refuse a column with the name of that of rescued values that is no text.

    Raises:
        ValueError: A column `_rescued` has another type than text.
    """
    kinds = [field.type for field in schema if field.name == RESCUED]
    for kind in kinds:
        if not (pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_null(kind)):
            raise ValueError(
                f"column '{RESCUED}' is {kind}, and a table has rescued values as text in the column of that name; "
                f"rename it, as with Select: {{rename: {{{RESCUED}: ...}}}}"
            )


def _members_in(text: str) -> dict[str, Any]:
    """The members of a text; a text of other origin, in a column that is also called `_rescued`, is itself a value."""
    with contextlib.suppress(ValueError, RecursionError):
        if isinstance(found := json.loads(text), dict):
            return found
    return {RESCUED: text}


def _as_text(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
