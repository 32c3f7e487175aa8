"""The JSON Schema of the properties of a class, for editors: what YAML may hold, with the meaning of each property."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

from dagflow.api.properties import ClientOptions, OneOrMany, Size, Variants, property_model
from dagflow.spec.class_description import meanings_of, summary_of

FROM_ENVIRONMENT = {"$ref": "#/$defs/FromEnvironment"}
DOTTED_PATH = {"type": "string", "pattern": r"\.|\$\{"}
"""The name of a class of the author's, which the app may also take from the environment."""

# Pydantic keeps bounds behind a validator of ours under its own names.
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}
_VALUES = ("default", "examples", "const", "enum")
_NAMED = ("properties", "$defs")
_parse_size = Size.__metadata__[0].func  # type: ignore[attr-defined]  # Annotated keeps it, its stub does not say so
_as_texts = ClientOptions.__metadata__[0].func  # type: ignore[attr-defined]  # as above


class _YamlSchema(GenerateJsonSchema):
    """Describes what YAML may hold, where pydantic describes what a checked value is."""

    # A default that JSON cannot express is left out.
    ignored_warning_kinds: ClassVar[set[JsonSchemaWarningKind]] = {"skipped-choice", "non-serializable-default"}  # type: ignore[misc]  # an instance's by its stub

    def function_before_schema(self, schema: core_schema.BeforeValidatorFunctionSchema) -> JsonSchemaValue:
        inner = super().function_before_schema(schema)
        function = schema["function"]["function"]
        if function is _parse_size:
            size = {"type": "string", "pattern": r"^\s*[0-9]+(\.[0-9]+)?\s*([KkMmGgTt]?[Bb]|[KkMmGgTt][Ii][Bb])?\s*$"}
            return {"anyOf": [inner, size]}
        if function is OneOrMany.func:
            return {"anyOf": [inner["items"], inner]}
        if function is _as_texts:
            return {**inner, "additionalProperties": {"type": ["string", "number", "boolean"]}}
        return inner

    def handle_invalid_for_json_schema(self, schema: core_schema.CoreSchema, error_info: str) -> JsonSchemaValue:
        # A type that only Python knows: editors accept anything, validate decides.
        return {}

    def field_title_should_be_set(self, schema: Any) -> bool:
        # A property's name is its title.
        return False


def properties_schema(
    cls: type, name: str, definitions: dict[str, Any], own_types: Collection[str] = ()
) -> dict[str, Any]:
    """The JSON Schema of a mapping with the properties of a class.

    Args:
        definitions: The definitions of the whole schema; those that this one refers to are added.
        own_types: Dotted paths of the author's, such as formats, which `type` may name beside the built-in ones.
    """
    model = property_model(cls)
    template = f"#/$defs/{name}.{{model}}"
    schema = model.model_json_schema(by_alias=False, ref_template=template, schema_generator=_YamlSchema)
    for inner, definition in schema.pop("$defs", {}).items():
        definitions[f"{name}.{inner}"] = _or_from_environment(definition)
    found: dict[str, Any] = _or_from_environment(schema)
    known = found.setdefault("properties", {})
    for each, variants in variants_of(model).items():
        notes = {key: known[each][key] for key in ("description", "default") if key in known[each]}
        known[each] = {**notes, **_variants_schema(variants, definitions, own_types)}
    meanings = meanings_of(cls)
    for each, property_schema in known.items():
        if each in meanings:
            property_schema.setdefault("description", meanings[each])
    if summary := summary_of(cls):
        found["description"] = summary
    return found


def variants_of(model: type[BaseModel]) -> dict[str, Variants]:
    fields = model.model_fields.items()
    return {name: mark for name, field in fields for mark in field.metadata if isinstance(mark, Variants)}


def _variants_schema(mark: Variants, definitions: dict[str, Any], own_types: Collection[str]) -> dict[str, Any]:
    classes = dict(mark.classes())
    for path in own_types:
        with contextlib.suppress(ValueError):  # it is of another kind
            classes[path] = mark.find(path)
    names = class_names(classes)
    branches = []
    for name, cls in classes.items():
        full_name = f"{cls.__module__}.{cls.__qualname__}"
        if full_name not in definitions:
            definitions[full_name] = {}  # taken, so that a class within itself ends
            options = properties_schema(cls, full_name, definitions)
            definitions[full_name] = {**options, "properties": {"type": {}, **options["properties"]}}
        branches.append(when("type", name, {"$ref": f"#/$defs/{full_name}"}))
    mapping = {"type": "object", "required": ["type"], "properties": {"type": names}, "allOf": branches}
    return {"anyOf": [*names["anyOf"], mapping]}


def class_names(classes: Mapping[str, type]) -> dict[str, Any]:
    """The JSON Schema of the name of a class: one of those that are known, each with its meaning, or a dotted path."""
    meanings = [summary_of(cls) for cls in classes.values()]
    # Editors that do not know the meanings of single values ignore them.
    known = {"type": "string", "enum": list(classes), "markdownEnumDescriptions": meanings}
    return {"anyOf": [known, DOTTED_PATH]}


def when(key: str, value: str, then: Mapping[str, Any]) -> dict[str, Any]:
    """A schema that holds only where one of the keys of a mapping has a value."""
    return {"if": {"properties": {key: {"const": value}}, "required": [key]}, "then": then}


def _or_from_environment(schema: Any) -> Any:
    """The schema, where every value that is no text may also be a reference to the environment."""
    if isinstance(schema, list):
        return [_or_from_environment(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {_BOUNDS.get(key, key): _changed(key, value) for key, value in schema.items()}
    is_bound = changed.get("type") in ("integer", "number", "boolean") or "enum" in changed or "const" in changed
    if not is_bound:
        return changed
    notes = {key: changed.pop(key) for key in ("title", "description", "default") if key in changed}
    return {**notes, "anyOf": [changed, FROM_ENVIRONMENT]}


def _changed(key: str, value: Any) -> Any:
    if key in _VALUES:
        return value
    if key in _NAMED:  # the keys below are names that an author has given, such as `enum`
        return {name: _or_from_environment(each) for name, each in value.items()}
    return _or_from_environment(value)
