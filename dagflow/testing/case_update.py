"""Writes published output into the YAML of cases; comments, and the layout of all else, stay unchanged."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from dagflow.frozen import frozen
from dagflow.spec.yaml_parser import LOADER, behind_key, flow
from dagflow.spec.yaml_tree import hide_braces, show_braces
from dagflow.storage.backends.local.disk import replace_file, translated
from dagflow.testing.app_cases import Actual

# Possessive, as the white space and comments of a text can be divided in very many ways.
_SPACE = re.compile(r"(?:\s++|(?<=\s)#[^\r\n]*+)*+")
_PROPERTY = re.compile(rf"{_SPACE.pattern}([&!][^\s,\[\]{{}}]*)")
_COMMENT = re.compile(r"[ \t]+#[^\r\n]*")
_BLOCK_HEADER = re.compile(r"[|>][-+0-9]*([ \t]+#[^\r\n]*)?")


@frozen
class _Edit:
    """A part of a text, and its replacement."""

    start: int
    end: int
    text: str


@frozen
class _Value:
    """A value in a text.

    Attributes:
        is_flow: Whether it is inside of braces.
        before: The end of what precedes it: the colon, or its anchor or tag.
    """

    node: Any
    column: int
    is_flow: bool
    before: int
    start: int
    end: int

    @property
    def is_block(self) -> bool:
        """Whether it is a list or mapping with a line for each item."""
        return isinstance(self.node, yaml.CollectionNode) and not self.node.flow_style


def updated(text: str, actuals: Iterable[Actual]) -> tuple[str, int]:
    """The text of a test file, or of an app with tests, with published values in place of stated ones.

    Args:
        actuals: The values that differ. A value from an alias or a merge key is left unchanged, and so is one that
            cannot be replaced without a change to others, for example because they use an anchor inside of it.

    Returns:
        The text, and the number of replaced values.
    """
    wanted = list(actuals)
    done, count = _replaced(text, wanted)
    if count or len(wanted) == 1:
        return done, count
    for actual in wanted:
        text, more = _replaced(text, [actual])
        count += more
    return text, count


def update_file(file: str, actuals: Sequence[Actual]) -> int:
    """Replace values in a file; returns how many were replaced."""
    # Not as text: line ends must stay unchanged.
    before = Path(file).read_bytes().decode("utf-8-sig")
    text, count = updated(before, actuals)
    if count:
        with translated(file, "write"):
            replace_file(file, text.encode())
    return count


def _replaced(text: str, actuals: Sequence[Actual]) -> tuple[str, int]:
    """The text with the values, and how many were replaced; unchanged where anything else would change its value."""
    root = _composed(text)
    found = [(value, actual.value) for actual in actuals if (value := _value_at(root, text, actual.path)) is not None]
    line_end = "\r\n" if "\r\n" in text else "\n"
    done = text
    for edit in sorted((_edit(text, *each) for each in found), key=lambda edit: edit.start, reverse=True):
        lines = edit.text.replace("\r\n", "\n").replace("\n", line_end)
        done = done[: edit.start] + lines + done[edit.end :]
    replaced = {id(value.node): _facts(_composed(f"[{flow(new)}]").value[0], {}) for value, new in found}
    try:
        is_right = _facts(_composed(done), {}) == _facts(root, replaced)
    except yaml.YAMLError:
        is_right = False
    return (done, len(found)) if is_right else (text, 0)


def _composed(text: str) -> Any:
    return yaml.compose(hide_braces(text), LOADER)


def _facts(node: Any, replaced: Mapping[int, Any]) -> Any:
    """The meaning of a node, for comparison; for replaced nodes, their new meaning."""
    if id(node) in replaced:
        return replaced[id(node)]
    if isinstance(node, yaml.MappingNode):
        return node.tag, [(_facts(key, replaced), _facts(value, replaced)) for key, value in node.value]
    if isinstance(node, yaml.SequenceNode):
        return node.tag, [_facts(each, replaced) for each in node.value]
    return node.tag, show_braces(node.value)


def _value_at(root: Any, text: str, path: Sequence[str]) -> _Value | None:
    """The value that keys lead to; None where it is elsewhere."""
    node, key, is_flow = root, None, False
    for name in path:
        if not isinstance(node, yaml.MappingNode):
            return None
        is_flow = is_flow or bool(node.flow_style)
        found = [pair for pair in node.value if show_braces(str(pair[0].value)) == name]
        if not found:
            return None
        key, node = found[0]
        if node.start_mark.index < key.end_mark.index:
            return None  # an alias: its value is elsewhere
    if key is None:
        return None
    begin, node_end = node.start_mark.index, node.end_mark.index
    before = text.find(":", key.end_mark.index, begin) + 1
    if not before:
        return None  # `? key` without a value
    start = end = before  # for an empty value, the marks may be those of what comes next
    if begin < node_end:
        start = begin
        while match := _PROPERTY.match(text, start, node_end):
            before = start = match.end()
        if space := _SPACE.match(text, start, node_end):
            start = space.end()
        end = max(start, _end_of(node))
        end -= len(text[start:end]) - len(text[start:end].rstrip())
    return _Value(node, key.start_mark.column, is_flow, before, start, end)


def _end_of(node: Any) -> int:
    """The end of a value: a block ends where the next one begins, after comments that are not its own."""
    if isinstance(node, yaml.CollectionNode) and not node.flow_style and node.value:
        last = node.value[-1]
        return _end_of(last[1] if isinstance(last, tuple) else last)
    end: int = node.end_mark.index
    return end


def _edit(text: str, value: _Value, new: Any) -> _Edit:
    """Replace a value by a new one, and keep comments before, after and in its first line."""
    first, _, lines = behind_key(new, value.column).partition("\n")
    space = text[value.before : value.start]
    # Blank lines after the value would become part of a text that keeps its end.
    if value.is_flow or first == " |+" or (value.is_block and first):
        lines = ""
    one_line = f" {flow(new)}"
    if value.is_block:
        head = f"{space.rstrip()}\n{lines}" if lines else one_line + space.rstrip()
        return _Edit(value.before, value.end, head)
    end, comment = value.end, ""
    if isinstance(value.node, yaml.ScalarNode) and value.node.style in ("|", ">"):
        header = _BLOCK_HEADER.match(text, value.start)
        comment = (header and header[1]) or ""
    elif lines and (match := _COMMENT.match(text, end)):
        end, comment = match.end(), match[0]
    if lines and not first:
        return _Edit(value.before, end, f"{space.rstrip()}{comment}\n{lines}")
    shown = f"{first}{comment}\n{lines}" if lines else one_line + comment
    return _Edit(value.start, end, shown.removeprefix(" ") if space else shown)
