"""Writes what was published into the YAML of cases; comments, and the layout of all else, stay as they are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml

from dagflow.errors import DagflowError
from dagflow.spec.environment import hide_braces
from dagflow.spec.yaml_text import behind_key, flow
from dagflow.testing.app_cases import Actual


def updated(text: str, actuals: Iterable[Actual]) -> tuple[str, int]:
    """A file of tests, or an app with tests, that states what was published.

    Args:
        text: The file.
        actuals: The values that differ. What an alias or a merge key gives is left as it is.

    Returns:
        The text, and how many values it has got.
    """
    root = yaml.compose(hide_braces(text), yaml.SafeLoader)
    edits = [edit for actual in actuals if (edit := _edit(root, text, actual)) is not None]
    line_end = "\r\n" if "\r\n" in text else "\n"
    for start, end, value in sorted(edits, reverse=True):
        text = text[:start] + value.replace("\n", line_end) + text[end:]
    return text, len(edits)


def update_file(file: str, actuals: Sequence[Actual]) -> int:
    """Write values into a file; gives how many.

    Raises:
        DagflowError: The file cannot be written.
    """
    path = Path(file)
    # Not as text: line ends stay what they are.
    before = path.read_bytes().decode("utf-8-sig")
    text, count = updated(before, actuals)
    if count:
        try:
            path.write_bytes(text.encode())
        except OSError as error:
            raise DagflowError(f"{file}: cannot be written: {error.strerror or error}") from error
    return count


def _edit(root: Any, text: str, actual: Actual) -> tuple[int, int, str] | None:
    """Start and end of what stands behind a key, and what shall stand there."""
    node, key, is_flow = root, None, False
    for name in actual.path:
        if not isinstance(node, yaml.MappingNode):
            return None
        is_flow = is_flow or bool(node.flow_style)
        found = [pair for pair in node.value if pair[0].value == name]
        if not found:
            return None
        key, node = found[0]
        if node.start_mark.index < key.end_mark.index:
            return None  # an alias: its value stands elsewhere
    if key is None:
        return None
    start = text.index(":", key.end_mark.index) + 1
    value = f" {flow(actual.value)}" if is_flow else behind_key(actual.value, key.start_mark.column)
    end = max(start, _end_of(node))
    return start, end - (len(text[start:end]) - len(text[start:end].rstrip())), value


def _end_of(node: Any) -> int:
    """Where a value ends: a block ends where the next one begins, behind comments that are not its own."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end_of(last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    return end
