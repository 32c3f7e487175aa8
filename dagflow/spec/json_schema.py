"""The JSON Schema of an app's YAML, for editors: made from the classes that check apps."""

from __future__ import annotations

from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from dagflow.api.operator import Operator
from dagflow.api.properties import Paths, Size, property_model
from dagflow.spec.app_reader import APP_NAME, MAX_WINDOW_MILLIS
from dagflow.spec.app_spec import RETAINED_WINDOWS, STALL_WARNING_MILLIS
from dagflow.spec.class_lookup import built_in_operators
from dagflow.spec.graph_reader import NAME
from dagflow.spec.operator_reader import MAX_PARTITIONS

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_FROM_ENVIRONMENT = {"$ref": "#/$defs/FromEnvironment"}
_PORT = {"$ref": "#/$defs/Port"}
# Behind a validator of ours pydantic leaves bounds by its own names.
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_parse_size = Size.__metadata__[0].func  # type: ignore[attr-defined]  # Annotated keeps it, its stub does not say so
_one_or_many = Paths.__metadata__[0].func  # type: ignore[attr-defined]  # as above


class _YamlSchema(GenerateJsonSchema):
    """Says what YAML may hold, where pydantic says what a checked value is."""

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        inner = super().function_before_schema(schema)
        function = schema["function"]["function"]
        if function is _parse_size:
            size = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*([KkMmGgTt]?[Bb]|[KkMmGgTt][Ii][Bb])?\s*$"}
            return {"anyOf": [inner, size]}
        return {"anyOf": [{"type": "string"}, inner]} if function is _one_or_many else inner

    def handle_invalid_for_json_schema(self, schema: core_schema.CoreSchema, error_info: str) -> JsonSchemaValue:
        # A type that only Python knows: editors accept anything, validate decides.
        return {}


def json_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of an app, with the properties of the built-in operators."""
    definitions: dict[str, Any] = {
        "FromEnvironment": {"type": "string", "pattern": r"\$\{", "description": "${NAME} or ${NAME:-default}"},
        "Port": {"type": "string", "pattern": r"^[^.]+\.[^.]+$|\$\{", "description": "operator.port"},
        "Ports": {"anyOf": [_PORT, {"type": "array", "items": _PORT, "minItems": 1}]},
    }
    definitions["Module"] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "module": {"type": "string", "description": "a module's file, beside this one or in the working directory"},
            "properties": {"type": ["object", "null"]},
        },
    }
    built_in = built_in_operators()
    for name, cls in built_in.items():
        definitions[name] = _properties_schema(cls, definitions)
    return {
        "$schema": _DIALECT,
        "title": "dagflow app",
        "type": "object",
        "required": ["name", "operators"],
        "additionalProperties": False,
        "properties": {
            "name": {"type": "string", "pattern": rf"^{APP_NAME.pattern}$|\$\{{"},
            "attributes": _attributes_schema(),
            "operators": _operators_schema(built_in),
            "streams": _streams_schema(),
        },
        "$defs": definitions,
    }


def module_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a module's file."""
    schema = json_schema()
    exposed = {"anyOf": [{"type": "string", "pattern": r"^[^.]+\..+$"}, {"type": "array", "minItems": 1}]}
    ports = {"$ref": "#/$defs/Ports"}
    return {
        **schema,
        "title": "dagflow module",
        "required": ["operators"],
        "properties": {
            "description": {"type": "string", "description": "what the module is for"},
            "inputs": {"type": ["object", "null"], "additionalProperties": ports},
            "outputs": {"type": ["object", "null"], "additionalProperties": ports},
            "properties": {"type": ["object", "null"], "additionalProperties": exposed},
            "operators": schema["properties"]["operators"],
            "streams": schema["properties"]["streams"],
        },
    }


def _properties_schema(cls: type[Operator], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema of one operator's properties; what it refers to is added to the definitions."""
    owner: type = cls
    template = f"#/$defs/{cls.__name__}.{{model}}"
    schema = property_model(owner).model_json_schema(
        by_alias=False, ref_template=template, schema_generator=_YamlSchema
    )
    for name, definition in schema.pop("$defs", {}).items():
        definitions[f"{cls.__name__}.{name}"] = _or_from_environment(definition)
    found: dict[str, Any] = _or_from_environment(schema)
    if cls.__doc__:
        found["description"] = cls.__doc__.strip().partition("\n")[0]
    return found


def _or_from_environment(schema: Any) -> Any:
    """The schema, where every value that is no text may also be a reference to the environment."""
    if isinstance(schema, list):
        return [_or_from_environment(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {
        _BOUNDS.get(key, key): value if key in ("default", "examples", "const") else _or_from_environment(value)
        for key, value in schema.items()
    }
    is_bound = changed.get("type") in ("integer", "number", "boolean") or "enum" in changed or "const" in changed
    if not is_bound:
        return changed
    notes = {key: changed.pop(key) for key in ("title", "description", "default") if key in changed}
    return {**notes, "anyOf": [changed, _FROM_ENVIRONMENT]}


def _attributes_schema() -> dict[str, Any]:
    millis = {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_WINDOW_MILLIS}, _FROM_ENVIRONMENT]}
    properties = {
        "checkpoint": {"type": "string", "description": "where the journal is; default .dagflow/<name>"},
        "window_millis": {**millis, "description": "window length while following"},
        "stall_warning_millis": {
            **millis,
            "description": "how long work may stand still before a warning says where",
            "default": STALL_WARNING_MILLIS,
        },
        "task_timeout_millis": {
            **millis,
            "description": "how long a task may stand still before it is ended and run again; for ever by default",
        },
        "master": {"type": "string", "description": "Spark master; default local[*]"},
        "durability": {
            "anyOf": [{"enum": ["process", "power"]}, _FROM_ENVIRONMENT],
            "description": "what output survives: the death of every process, or also a power loss",
            "default": "process",
        },
        "retain_windows": {
            "anyOf": [{"const": "all"}, {"type": "integer", "minimum": 1}, _FROM_ENVIRONMENT],
            "description": "how many finished windows the journal can tell about, and replay",
            "default": RETAINED_WINDOWS,
        },
        "roots": {
            "type": "object",
            "additionalProperties": {"type": "string"},
            "description": "locations by name, below which the checkpoint knows all files by name and rest",
        },
        "spark": {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean"]}},
        "storage": {
            "type": "object",
            "additionalProperties": {"type": "object"},
            "description": "options of file systems by protocol: s3, gs, hdfs, ...; credentials come from ${NAME}",
        },
    }
    return {"type": ["object", "null"], "additionalProperties": False, "properties": properties}


def _operators_schema(built_in: dict[str, type[Operator]]) -> dict[str, Any]:
    count = {"type": "integer", "minimum": 1, "maximum": MAX_PARTITIONS}
    keyed = {
        "type": "object",
        "required": ["by"],
        "additionalProperties": False,
        "properties": {
            "by": {"type": "string", "minLength": 1, "description": "a column, or the dotted path of a StreamCodec"},
            "count": {"anyOf": [count, _FROM_ENVIRONMENT]},
        },
    }
    partition = [{"const": "parallel"}, count, keyed, _FROM_ENVIRONMENT]
    operator = {
        "type": "object",
        "required": ["class"],
        "additionalProperties": False,
        "properties": {
            "class": {"anyOf": [{"enum": sorted(built_in)}, {"type": "string", "pattern": r"\.|\$\{"}]},
            "properties": {"type": ["object", "null"]},
            "partition": {"anyOf": partition},
            "partitioner": {
                "type": "object",
                "required": ["class"],
                "additionalProperties": False,
                "properties": {"class": {"type": "string"}, "properties": {"type": ["object", "null"]}},
            },
        },
        "allOf": [
            {
                "if": {"properties": {"class": {"const": name}}, "required": ["class"]},
                "then": {"properties": {"properties": {"$ref": f"#/$defs/{name}"}}},
            }
            for name in built_in
        ],
    }
    return {
        "type": "object",
        "minProperties": 1,
        "propertyNames": {"pattern": f"^{NAME.pattern}$"},
        "additionalProperties": {
            "if": {"type": "object", "required": ["module"]},
            "then": {"$ref": "#/$defs/Module"},
            "else": operator,
        },
    }


def _streams_schema() -> dict[str, Any]:
    ports = {"$ref": "#/$defs/Ports"}
    broadcast = {"type": "boolean", "description": "whether every partition of the targets gets everything"}
    stream = {
        "type": "object",
        "required": ["from", "to"],
        "additionalProperties": False,
        "properties": {"from": ports, "to": ports, "broadcast": {"anyOf": [broadcast, _FROM_ENVIRONMENT]}},
    }
    return {"type": ["object", "null"], "additionalProperties": stream}
