"""Writes columns as YAML, with the evidence for each as a comment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from dagflow.cli.scaffold.column_types import ColumnGuess
from dagflow.spec.yaml_text import flow, scalar


def column_lines(columns: Sequence[ColumnGuess], indent: str = "") -> Iterator[str]:
    """A line for each column: its name, its type and the evidence. One without a type is left out, by a comment."""
    entries = [f"{scalar(each.name)}: {value_text(each.type)}" for each in columns if each.type is not None]
    width = max(map(len, entries), default=0)
    left = iter(entries)
    for each in columns:
        if each.type is None:
            yield f"{indent}# {comment(f'{scalar(each.name)} is left out, it has no type: {each.evidence}')}"
        else:
            yield f"{indent}{next(left):<{width}}  # {comment(each.evidence)}".rstrip(" #")


def value_text(value: Any) -> str:
    # Types such as decimal(18, 2) need no quotes where nothing stands around them.
    return value if isinstance(value, str) and value.startswith("decimal(") else flow(value)


def comment(text: str) -> str:
    """A text as a comment can hold it: names of files may have line ends and bytes that are no UTF-8."""
    return "".join(char if char.isprintable() else "?" for char in text)
