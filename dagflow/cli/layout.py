"""Text that fits the terminal."""

from __future__ import annotations

from collections.abc import Iterable

import click


def definitions(rows: Iterable[tuple[str, str]], *, title: str = "") -> str:
    """Terms and what they mean, aligned; long meanings are wrapped.

    Args:
        rows: (term, meaning) pairs.
        title: A heading over them, or "".
    """
    formatter = click.HelpFormatter()
    pairs = list(rows)
    if title:
        with formatter.section(title):
            formatter.write_dl(pairs)
    elif pairs:
        formatter.write_dl(pairs)
    return formatter.getvalue().rstrip("\n")


def paragraphs(text: str) -> str:
    """Text wrapped anew, paragraph by paragraph."""
    return click.wrap_text(text, width=click.HelpFormatter().width, preserve_paragraphs=True)
