"""Record formats: the registry, and how YAML names a format. A new format is a file here and a line in FORMATS."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, ValidationError, WithJsonSchema

from dagflow.api.properties import Variants, property_model
from operators.reader.formats.base import RecordFormat

FORMATS = {
    "lines": "operators.reader.formats.lines.Lines",
    "escaped_lines": "operators.reader.formats.escaped_lines.EscapedLines",
    "csv": "operators.reader.formats.csv.Csv",
    "json_lines": "operators.reader.formats.json_lines.JsonLines",
    "paragraphs": "operators.reader.formats.paragraphs.Paragraphs",
    "regex": "operators.reader.formats.regex.Regex",
    "fixed": "operators.reader.formats.fixed.Fixed",
    "length_prefixed": "operators.reader.formats.length_prefixed.LengthPrefixed",
    "whole_file": "operators.reader.formats.whole_file.WholeFile",
    "xml": "operators.reader.formats.xml.Xml",
}
"""The class of each built-in format; loaded when the format is first asked for."""


def format_class(name: str) -> type[RecordFormat]:
    """The class of a format.

    Args:
        name: A built-in format, or the dotted path of a subclass of RecordFormat.

    Raises:
        ValueError: There is no such format, with the nearest name.
    """
    if name not in FORMATS and "." not in name:
        raise ValueError(
            f"there is no format '{name}'{_suggestion(name, FORMATS)} formats: {', '.join(sorted(FORMATS))}, "
            "or a dotted path"
        )
    found = _imported(name, FORMATS.get(name, name))
    if not (isinstance(found, type) and issubclass(found, RecordFormat)):
        raise ValueError(f"format '{name}' is not a subclass of RecordFormat")
    if missing := ", ".join(sorted(found.__abstractmethods__)):
        raise ValueError(f"format '{name}' does not define {missing}")
    return found


def _imported(format_name: str, path: str) -> object:
    module_name, _, name = path.rpartition(".")
    try:
        module = importlib.import_module(module_name)
    except ImportError as error:
        raise ValueError(f"format '{format_name}': cannot import {module_name}: {error}") from error
    if not hasattr(module, name):
        hint = _suggestion(name, vars(module))
        raise ValueError(f"format '{format_name}': module {module_name} has no '{name}'{hint}")
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
    problems = [_unknown(name, cls, option, takes) for option in options if option not in takes]
    try:
        made = cls(**{option: given for option, given in options.items() if option in takes})
    except ValidationError as error:
        problems += _option_problems(name, error)
    except ValueError as error:
        problems.append(f"format '{name}': {error}")
    if problems:
        raise ValueError("; ".join(problems))
    return made


def _unknown(name: str, cls: type[RecordFormat], option: str, takes: list[str]) -> str:
    if option in cls.removed_options:
        return f"format '{name}' no longer has the option '{option}': {cls.removed_options[option]}"
    return f"format '{name}' has no option '{option}'{_suggestion(option, takes)} it takes: {', '.join(takes)}"


def _suggestion(name: str, known: Any) -> str:
    close = difflib.get_close_matches(name, known, 1)
    return f"; did you mean '{close[0]}'?" if close else ""


def _option_problems(name: str, error: ValidationError) -> list[str]:
    """The problems that pydantic found with a format's options, in the words of an app."""
    problems = []
    details = error.errors()
    # Where a value may be of several kinds, what its own kind finds wrong says more than that it is of no other.
    explained = {detail["loc"][:1] for detail in details if detail["type"] == "value_error"}
    for detail in details:
        if detail["type"] != "value_error" and detail["loc"][:1] in explained:
            continue
        # Kinds that pydantic has tried are no places in the app.
        where = ".".join(part for part in map(str, detail["loc"]) if "[" not in part)
        if detail["type"] == "missing":
            problems.append(f"format '{name}' needs option '{where}'")
        else:
            message = detail["msg"].removeprefix("Value error, ")
            problems.append(f"format '{name}', option '{where}': {message}; got {detail['input']!r}")
    return problems


_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "properties": {"type": {"type": "string"}}, "required": ["type"]},
    ],
    "description": f"a format: one of {', '.join(FORMATS)}, or the dotted path of a RecordFormat",
}

FormatSpec = Annotated[
    RecordFormat,
    BeforeValidator(make_format),
    WithJsonSchema(_SCHEMA),
    Variants(lambda: {name: format_class(name) for name in FORMATS}),
]
"""A property that holds a record format; YAML gives a name, or a mapping with `type` and options."""
