"""Converts dataclasses to JSON values and back: the one codec of everything that the journal persists.

A bytes field becomes base64 text, a tuple becomes a list, and a key of a mapping becomes text. A field of type Any must
have JSON values, or what frames.compressed() returns.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from dagflow.errors import ANOTHER_CHECKPOINT, JournalError
from dagflow.journal.frames import Compressed

T = TypeVar("T")


def to_json(value: Any) -> Any:
    """A dataclass, or a collection of dataclasses, as JSON values.

    Raises:
        TypeError: A value is neither JSON nor a dataclass.
    """
    return msgspec.to_builtins(value, str_keys=True, builtin_types=(Compressed,))


def from_json(kind: type[T], value: Any, url: str) -> T:
    """The object that was given to to_json()."""
    try:
        return msgspec.convert(value, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise JournalError(
            f"this is no {kind.__name__} that this program knows: {error}",
            url=url,
            hint=f"run the version of dagflow that wrote it, or {ANOTHER_CHECKPOINT}",
        ) from error
