"""The JSON Schema of `steps`, for editors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dagflow.spec.property_schema import class_names, when
from dagflow.spec.step_reader import SHORT_NAMES, ShortName


def steps_schema(
    classes: Mapping[str, type], definitions: Mapping[str, Any], operator: Mapping[str, Any]
) -> dict[str, Any]:
    """The schema of the list of steps.

    Args:
        classes: The operators by name.
        definitions: For each of them the schema of its properties.
        operator: The schemas of the keys `partition` and `partitioner` of an operator.
    """
    keys = {
        "name": {"type": "string", "description": "the operator's name; by default the short name or the class"},
        "class": class_names(classes),
        "partition": operator["partition"],
        "partitioner": operator["partitioner"],
    }
    branches = [
        {
            "if": {"required": [name], "not": {"required": ["class"]}},
            "then": {
                "properties": {**_properties_of(short.class_name, definitions), name: _value_of(short, definitions)}
            },
        }
        for name, short in SHORT_NAMES.items()
    ]
    unknown = {"required": ["class"], "properties": {"class": {"not": {"enum": list(classes)}}}}
    branches.append({"if": unknown, "then": {"additionalProperties": True}})
    branches += [when("class", name, {"properties": _properties_of(name, definitions)}) for name in classes]
    step = {
        "type": "object",
        "anyOf": [*(_with_short_name(name, short) for name, short in SHORT_NAMES.items()), {"required": ["class"]}],
        "properties": keys,
        "allOf": branches,
        "unevaluatedProperties": False,
    }
    reference = {"type": "string", "description": "the name of an operator below 'operators'"}
    return {
        "type": "array",
        "minItems": 1,
        "items": {"anyOf": [reference, step]},
        "description": "operators one behind the other: the short form of operators and streams",
    }


def _with_short_name(name: str, short: ShortName) -> dict[str, Any]:
    meaning = f"{short.class_name}: {f'its property {short.property}' if short.property else 'its properties'}"
    # Beside a class, the key is one of its properties.
    return {"required": [name], "not": {"required": ["class"]}, "properties": {name: {"description": meaning}}}


def _properties_of(name: str, definitions: Mapping[str, Any]) -> dict[str, Any]:
    properties: dict[str, Any] = definitions[name].get("properties", {})
    return properties


def _value_of(short: ShortName, definitions: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of the value of a short name."""
    known = _properties_of(short.class_name, definitions)
    if not short.property:
        return {"type": "object", "properties": known, "additionalProperties": False}
    value: dict[str, Any] = known[short.property]
    if not short.list_property:
        return value
    return {"if": {"type": "array"}, "then": known[short.list_property], "else": value}
