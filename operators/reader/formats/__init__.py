"""Record formats: what a record is, one file per format, and how YAML names them."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError, WithJsonSchema

from dagflow.api.properties import Variants, property_model
from operators.reader.formats.base import RecordFormat, option_problems

BUILT_IN = {
    "lines": "Lines",
    "escaped_lines": "EscapedLines",
    "csv": "Csv",
    "json_lines": "JsonLines",
    "paragraphs": "Paragraphs",
    "regex": "Regex",
    "fixed": "Fixed",
    "length_prefixed": "LengthPrefixed",
    "whole_file": "WholeFile",
    "xml": "Xml",
}
"""The built-in formats: the module of each, which is its name, and the class in it."""


def format_class(name: str) -> type[RecordFormat]:
    """The class of a format.

    Args:
        name: A built-in format, or the dotted path of a subclass of RecordFormat.

    Raises:
        ValueError: There is no such format, with the nearest name.
    """
    if name in BUILT_IN:
        module = importlib.import_module(f"{__name__}.{name}")
        found = getattr(module, BUILT_IN[name])
    elif "." in name:
        found = _imported(name)
    else:
        close = difflib.get_close_matches(name, BUILT_IN, 1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise ValueError(f"there is no format '{name}'{hint} formats: {', '.join(sorted(BUILT_IN))}, or a dotted path")
    if not (isinstance(found, type) and issubclass(found, RecordFormat)):
        raise ValueError(f"format '{name}' is not a subclass of RecordFormat")
    if missing := ", ".join(sorted(found.__abstractmethods__)):
        raise ValueError(f"format '{name}' does not define {missing}")
    return found


def _imported(path: str) -> object:
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"format '{path}': cannot import {module_name}: {error}") from error
    if not hasattr(module, name):
        close = difflib.get_close_matches(name, vars(module), 1)
        hint = f"; did you mean '{close[0]}'?" if close else ""
        raise ValueError(f"format '{path}': module {module_name} has no '{name}'{hint}")
    return getattr(module, name)


def make_format(value: object) -> RecordFormat:
    """Make a format out of what YAML gives.

    Args:
        value: A name; a mapping with `type`, the name, and the format's options; or a format, which is given back.

    Raises:
        ValueError: Every mistake in it, with the nearest valid names.
    """
    if isinstance(value, RecordFormat):
        return value
    if isinstance(value, str):
        value = {"type": value}
    if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
        raise ValueError(f"a format is a name, or a mapping with 'type' and options; got {value!r}")
    options: dict[str, Any] = {str(key): option for key, option in value.items() if key != "type"}
    name = value["type"]
    cls = format_class(name)
    takes = list(property_model(cls).model_fields)
    problems = [_unknown(name, option, takes) for option in options if option not in takes]
    try:
        made = cls(**{option: given for option, given in options.items() if option in takes})
    except ValidationError as error:
        problems += option_problems(name, error)
    except ValueError as error:
        problems.append(f"format '{name}': {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return made


def _unknown(name: str, option: str, takes: list[str]) -> str:
    close = difflib.get_close_matches(option, takes, 1)
    hint = f"; did you mean '{close[0]}'?" if close else ""
    return f"format '{name}' has no option '{option}'{hint} it takes: {', '.join(takes)}"


_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
    ],
    "description": f"a format: one of {', '.join(BUILT_IN)}, or the dotted path of a RecordFormat",
}

FormatSpec = Annotated[
    RecordFormat,
    BeforeValidator(make_format),
    WithJsonSchema(_SCHEMA),
    Variants(lambda: {name: format_class(name) for name in BUILT_IN}),
]
"""A property that holds a record format; YAML gives a name, or a mapping with `type` and options."""
