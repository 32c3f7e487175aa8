"""Writes values as YAML that dagflow reads back as they were."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import yaml

from dagflow.spec.yaml_parser import resolve

_WIDTH = 100
"""Characters of a mapping in braces; a longer one has a line for each key."""

_ESCAPES = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def scalar(text: str) -> str:
    """A text as YAML, in quotes where it would mean something else without."""
    return _key(text).replace("${", "$${")


def _key(text: str) -> str:
    """A key, in which `${` begins no variable."""
    try:
        # A dash alone is text in braces only.
        read = yaml.safe_load(f"- {{a: [{text}], {text}: 1}}\n- {text}\n")
        is_plain = read == [{"a": [text], text: 1}, text] and text.isprintable()
    except (yaml.YAMLError, TypeError, ValueError, RecursionError):
        # It looks like a date or a number and is none, or like lists within lists.
        is_plain = False
    if is_plain and resolve(text) == text and not {"#", "$"}.intersection(text):
        return text
    return f'"{"".join(map(_escaped, text))}"'


def _escaped(char: str) -> str:
    if char in _ESCAPES:
        return _ESCAPES[char]
    if char.isprintable():
        return char
    code = ord(char)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{_key(str(name))}: {flow(each)}' for name, each in value.items())}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(flow, value))}]"
    if isinstance(value, float) and not math.isfinite(value):
        return ".nan" if math.isnan(value) else ".inf" if value > 0 else "-.inf"
    return scalar(value) if isinstance(value, str) else json.dumps(value)


def behind_key(value: Any, indent: int) -> str:
    """The value after `key:`, over several lines where that is easier to read."""
    margin = "\n" + " " * (indent + 2)
    if isinstance(value, str) and "\n" in value and (header := _block_header(value)):
        lines = value.replace("${", "$${").removesuffix("\n").split("\n")
        return f" {header}" + "".join(margin + line if line else "\n" for line in lines)
    if isinstance(value, list) and value:
        return "".join(f"{margin}- {flow(each)}" for each in value)
    if isinstance(value, Mapping) and len(flow(value)) > _WIDTH:
        return "".join(f"{margin}{_key(str(name))}: {flow(each)}" for name, each in value.items())
    return f" {flow(value)}"


def _block_header(text: str) -> str:
    """The header of a block that holds a text; "" if no block can hold it."""
    is_clean = all(char.isprintable() or char in "\n\t" for char in text)
    if not is_clean or text[0] in " \t\n" or not text.strip("\n") or any(line.isspace() for line in text.split("\n")):
        return ""
    return "|+" if text.endswith("\n\n") else "|" if text.endswith("\n") else "|-"
