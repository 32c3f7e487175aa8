"""Names of directories that give a value to a column, such as day=2026-05-01, in the form of Hive and Spark."""

from __future__ import annotations

import hashlib
import re
from urllib.parse import unquote

NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The text for null."""

NAME_BYTES = 255
"""The longest name of a directory, in bytes, on most file systems."""

# Spark's list, and NUL, which Spark reads so but cannot write. Letters of all scripts and blanks stay: Spark reads an
# escape as a character, not as a byte of UTF-8, and DuckDB and polars take the names of columns as they are.
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\\[\]^{]")


def escaped(text: str) -> str:
    """A text without the characters that such names have as escapes."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def partition_name(column: str, value: str | None) -> str:
    """The name of the directory of a value; an empty text is null there."""
    return f"{escaped(column)}={escaped(value) if value else NO_VALUE}"


def column_of(directory: str) -> tuple[str, str | None] | None:
    """The column and the value of a directory; None where its name gives none.

    Escapes of bytes of UTF-8, as other programs write them, are read as well.
    """
    column, equals, value = directory.partition("=")
    return (_plain(column), None if value == NO_VALUE else _plain(value)) if equals and column else None


def _plain(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text  # its percent signs are no escapes


def shortened(name: str, text: bytes, room: int = NAME_BYTES) -> str:
    """A name that ends with a mark of a text, so that two texts of one name, or of one beginning, stay apart.

    Args:
        name: The name, with escapes.
        text: The text that the name is for.
        room: Bytes that the name may have.
    """
    mark = f"-{hashlib.sha256(text).hexdigest()[:16]}"
    # Neither a letter nor an escape is cut.
    head = name.encode()[: room - len(mark)].decode(errors="ignore")
    return re.sub("%[0-9A-F]?$", "", head) + mark
