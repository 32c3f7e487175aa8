"""The width of text in a picture, and how it is made to fit."""

from __future__ import annotations

from collections.abc import Iterator

# Widths of DejaVu Sans, as parts of the font size: it is wider than the other fonts that a picture names.
_NARROW, _SLIM, _USUAL, _CAPITAL, _BROAD, _FULL = 0.33, 0.42, 0.64, 0.7, 1.0, 1.8
_NARROW_CHARS = frozenset("iljI.,:;|!' ")
_SLIM_CHARS = frozenset('frt()[]{}-/\\"')
_BROAD_CHARS = frozenset("mwMW@%…")
_OTHER_SCRIPTS = "\u1100"
"""From this character on, letters are about square."""
_BOLD = 1.1


def text_width(text: str, size: float, *, is_bold: bool = False) -> float:
    """About how many pixels wide a text is in a sans-serif font; rather too many than too few."""
    return sum(map(_char_width, text)) * size * (_BOLD if is_bold else 1)


def _char_width(char: str) -> float:
    if char >= _OTHER_SCRIPTS and char != "…":
        return _FULL
    if char in _BROAD_CHARS:
        return _BROAD
    if char in _NARROW_CHARS:
        return _NARROW
    return _SLIM if char in _SLIM_CHARS else _CAPITAL if char.isupper() else _USUAL


def clipped(text: str, size: float, width: float, *, is_bold: bool = False) -> str:
    """The text, with its middle left out where it is wider than this many pixels: names differ at both ends."""
    kept = len(text)
    shown = text
    while text_width(shown, size, is_bold=is_bold) > width and kept > 1:
        kept -= 1
        shown = f"{text[: (kept + 1) // 2]}…{text[len(text) - kept // 2 :]}"
    return shown


def wrapped(text: str, size: float, width: float) -> Iterator[str]:
    """The text in lines of at most this many pixels, broken between words."""
    line = ""
    for word in text.split():
        longer = f"{line} {word}".strip()
        if line and text_width(longer, size) > width:
            yield line
            longer = word
        line = longer
    if line:
        yield line
