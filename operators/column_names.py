"""Names that columns and their members may have in tables and files."""

from __future__ import annotations

import unicodedata

MOST_CHARACTERS = 255
"""The longest name that warehouses take which read such tables."""

_SHOWN = 40


def shown_name(name: str) -> str:
    """A name as messages show it, on one line."""
    return ascii(name) if any(map(_is_control, name)) else f"'{name if len(name) <= _SHOWN else name[:_SHOWN] + '…'}'"


def why_no_name(name: str) -> str:
    """Why no table can have a column or member of a name, as the end of a sentence; "" if it can.

    Readers of a name with a NUL see what stands before it, and those of an empty one give it another.
    """
    if not name:
        return "its name is empty"
    if len(name) > MOST_CHARACTERS:
        return f"its name has {len(name):,} characters, and {MOST_CHARACTERS} are the most"
    control = next(filter(_is_control, name), "")
    return f"its name has the control character U+{ord(control):04X}" if control else ""


def _is_control(letter: str) -> bool:
    return unicodedata.category(letter) == "Cc"
