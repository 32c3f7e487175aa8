"""The JSON Schema of an app's YAML, for editors: made from the classes that check apps."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, ClassVar

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, JsonSchemaWarningKind
from pydantic_core import core_schema

from dagflow.api.partitioning import MAX_PARTITIONS
from dagflow.api.properties import ClientOptions, OneOrMany, Size, Variants, property_model
from dagflow.spec.app_reader import MAX_FRESHNESS_MILLIS, MAX_WINDOW_MILLIS, WAYS
from dagflow.spec.app_spec import RETAINED_WINDOWS, STALL_WARNING_MILLIS
from dagflow.spec.case_reader import CASE_KEYS
from dagflow.spec.class_description import ClassInfo, KnownNames, meanings_of, summary_of, variants_of
from dagflow.spec.class_lookup import OPERATOR, POLICY, built_in
from dagflow.spec.graph_reader import NAME, Direction
from dagflow.spec.head_reader import APP_NAME
from dagflow.spec.spark_master import MASTER_SETTING
from dagflow.spec.step_reader import SHORT_NAMES, ShortName

_DIALECT = "https://json-schema.org/draft/2020-12/schema"
_MAPPING = {"type": ["object", "null"]}
_SOURCES = {"$ref": "#/$defs/Sources"}
_TARGETS = {"$ref": "#/$defs/Targets"}


def json_schema(known: KnownNames | None = None) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of an app; without the names that it brings along the schema fits every app."""
    names = known or KnownNames()
    definitions = _shared_definitions(names)
    operators = _operators_schema(names, definitions)
    classes = {**built_in(OPERATOR), **names.classes}
    properties = {
        "name": _text("the app's name", pattern=rf"^{APP_NAME.pattern}$|\$\{{"),
        "attributes": _attributes_schema(),
        "steps": steps_schema(classes, definitions, operators["additionalProperties"]["else"]["properties"]),
        "rejects": _text("where records are written that an operator refuses, and that no stream takes"),
        "operators": operators,
        "streams": _streams_schema(),
        "tests": _tests_schema(),
    }
    document = _document("dagflow app", ["name"], properties, definitions)
    return {**document, "anyOf": [{"required": ["operators"]}, {"required": ["steps"]}]}


def module_schema(known: KnownNames | None = None) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a module's file; see json_schema()."""
    names = known or KnownNames()
    definitions = _shared_definitions(names)
    exposed = {"anyOf": [{"type": "string", "pattern": r"^[^.]+\..+$"}, {"type": "array", "minItems": 1}]}
    properties = {
        "description": _text("what the module is for"),
        "inputs": {**_MAPPING, "additionalProperties": _TARGETS, "description": "input ports by name"},
        "outputs": {**_MAPPING, "additionalProperties": _SOURCES, "description": "output ports by name"},
        "properties": {**_MAPPING, "additionalProperties": exposed, "description": "operator.property by name"},
        "operators": _operators_schema(names, definitions),
        "streams": _streams_schema(),
    }
    return _document("dagflow module", ["operators"], properties, definitions)


def _document(
    title: str, required: list[str], properties: Mapping[str, Any], definitions: Mapping[str, Any]
) -> dict[str, Any]:
    return {
        "$schema": _DIALECT,
        "title": title,
        "type": "object",
        "required": required,
        "additionalProperties": False,
        "properties": properties,
        "$defs": definitions,
    }


def _shared_definitions(known: KnownNames) -> dict[str, Any]:
    return {
        "FromEnvironment": _text("${NAME} or ${NAME:-default}", pattern=r"\$\{"),
        "Sources": _ports_schema(known, "output"),
        "Targets": _ports_schema(known, "input"),
        "Module": _module_use_schema(known.modules),
    }


def _ports_schema(known: KnownNames, direction: Direction) -> dict[str, Any]:
    """One port or a list of them; operators that were added since the schema was made may have any."""
    ports = {
        f"{name}.{port.name}": f"{port.type}: {port.meaning}" if port.meaning else port.type
        for name, info in known.operators.items()
        for port in (info.inputs if direction == "input" else info.outputs)
    }
    others = f"(?!(?:{'|'.join(known.operators)})\\.)" if known.operators else ""
    other = _text("operator.port", pattern=rf"^{others}[^.]+\.[^.]+$|\$\{{")
    choices = [{"type": "string", "enum": list(ports), "markdownEnumDescriptions": list(ports.values())}]
    one = [*(choices if ports else []), other]
    return {"anyOf": [*one, {"type": "array", "items": {"anyOf": one}, "minItems": 1}]}


def _module_use_schema(modules: Mapping[str, ClassInfo]) -> dict[str, Any]:
    path = _text("a module's file, beside this one or in the working directory")
    use = {"type": "object", "additionalProperties": False, "properties": {"module": path, "properties": _MAPPING}}
    branches = []
    for name, info in modules.items():
        known = {each.name: {"description": f"{each.meaning or each.name}: {each.type}"} for each in info.properties}
        exposed = {**_MAPPING, "additionalProperties": False, "properties": known}
        branches.append(when("module", name, {"properties": {"properties": exposed}}))
    return {**use, "allOf": branches} if branches else use


def _tests_schema() -> dict[str, Any]:
    count = {"type": ["integer", "null"], "minimum": 0}
    parts: dict[str, Any] = {
        **{key: {"type": ["object", "null"]} for key in ("files", "set", "output", "rows", "schema")},
        "records": {"type": ["object", "null"], "additionalProperties": count},
        "rejected": {"anyOf": [count, {"type": "array", "items": {"type": "string"}}]},
        "error": {"type": "string"},
        **{key: {"const": "every"} for key in ("cut", "kill")},
    }
    case = {"type": "object", "additionalProperties": False, "properties": {key: parts[key] for key in CASE_KEYS}}
    return {"type": ["object", "null"], "additionalProperties": case, "description": "cases for `dagflow test`"}


def _text(description: str, **limits: Any) -> dict[str, Any]:
    return {"type": "string", **limits, "description": description}


def _or_reference(description: str, *choices: Mapping[str, Any], **more: Any) -> dict[str, Any]:
    """One of some values, or a reference to the environment, which begins with `${`."""
    return {"anyOf": [*choices, FROM_ENVIRONMENT], "description": description, **more}


def _by_name(values: Any, description: str) -> dict[str, Any]:
    return {"type": "object", "additionalProperties": values, "description": description}


def _attributes_schema() -> dict[str, Any]:
    millis = {"type": "integer", "minimum": 1, "maximum": MAX_WINDOW_MILLIS}
    stall = "how long work may stall before a warning says where"
    timeout = "how long a task may stall before it is ended and run again; no limit by default"
    survives = "the failures that output survives: the death of every process, or also a power loss"
    runs = "where tasks run without --local: auto takes this machine for a small input of an app without exchanges"
    retained = "how many finished windows `status` can show and `replay` can run again"
    roots = "locations by name, below which the checkpoint knows all files by name and rest"
    storage = "options of file systems by protocol: s3, gs, hdfs, ...; credentials come from ${NAME}"
    properties = {
        "checkpoint": _text("where the journal is; default .dagflow/<name>"),
        "window_millis": _or_reference("window length while following", millis),
        "stall_warning_millis": _or_reference(stall, millis, default=STALL_WARNING_MILLIS),
        "task_timeout_millis": _or_reference(timeout, millis),
        "master": _text("Spark master; default local[*]"),
        "runtime": _or_reference(runs, {"enum": ["spark", "auto"]}, default="spark"),
        "durability": _or_reference(survives, {"enum": ["process", "power"]}, default="process"),
        "retain_windows": _or_reference(
            retained, {"const": "all"}, {"type": "integer", "minimum": 1}, default=RETAINED_WINDOWS
        ),
        "roots": _by_name({"type": "string"}, roots),
        "strict": _or_reference("warnings of the summary become exit codes", {"type": "boolean"}, default=False),
        "spark": {
            "type": "object",
            "propertyNames": {"not": {"const": MASTER_SETTING}},
            "additionalProperties": {"type": ["string", "number", "boolean"]},
        },
        "storage": _by_name({"type": "object"}, storage),
        **signals_schema(),
    }
    return {"type": ["object", "null"], "additionalProperties": False, "properties": properties}


def _operators_schema(known: KnownNames, definitions: dict[str, Any]) -> dict[str, Any]:
    count = {"type": "integer", "minimum": 1, "maximum": MAX_PARTITIONS}
    keyed = {
        "type": "object",
        "required": ["by"],
        "additionalProperties": False,
        "properties": {
            "by": _text("a column, or the dotted path of a StreamCodec", minLength=1),
            "count": _or_reference("how many partitions", count),
        },
    }
    meaning = "parallel: in the tasks of the operator before it; or how many partitions; or by which key"
    partition = _or_reference(meaning, {"const": "parallel"}, count, keyed)
    partitioner = _class_and_properties(built_in(POLICY), definitions)
    described = {"description": "decides how many partitions the operator has", **partitioner}
    operator = _class_and_properties({**built_in(OPERATOR), **known.classes}, definitions, known.types)
    operator["properties"] |= {"partition": partition, "partitioner": described}
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


def _class_and_properties(
    classes: Mapping[str, type], definitions: dict[str, Any], own_types: Collection[str] = ()
) -> dict[str, Any]:
    """A mapping with a class and the properties that it takes; those of an unknown class may be anything."""
    for name, cls in classes.items():
        definitions[name] = properties_schema(cls, name, definitions, own_types)
    return {
        "type": "object",
        "required": ["class"],
        "additionalProperties": False,
        "properties": {"class": class_names(classes), "properties": _MAPPING},
        "allOf": [when("class", name, _given(name, definitions[name])) for name in classes],
    }


def _given(name: str, properties: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of an operator whose class takes these properties."""
    given: dict[str, Any] = {"properties": {"properties": {"$ref": f"#/$defs/{name}"}}}
    return {**given, "required": ["properties"]} if properties.get("required") else given


def _streams_schema() -> dict[str, Any]:
    broadcast = {"type": "boolean", "description": "whether every partition of the targets gets everything"}
    stream = {
        "type": "object",
        "required": ["from", "to"],
        "additionalProperties": False,
        "properties": {
            "from": {**_SOURCES, "description": "the output port that records come from, or a list of them"},
            "to": {**_TARGETS, "description": "the input port that records go to, or a list of them"},
            "broadcast": {"anyOf": [broadcast, FROM_ENVIRONMENT]},
        },
    }
    return {**_MAPPING, "additionalProperties": stream}


def signals_schema() -> dict[str, Any]:
    headers = "headers of each request; credentials come from ${NAME}"
    target = {
        "url": _text("the whole URL that events are sent to", pattern=r"^https?://|\$\{"),
        "headers": _by_name({"type": ["string", "number"]}, headers),
    }
    namespace = _text("the namespace of the job", minLength=1, default="dagflow")
    return {
        "alerts": _alerts(target),
        "lineage": _mapping({**target, "namespace": namespace}, "where OpenLineage events are sent", ["url"]),
        "traces": _mapping(target, "where traces are sent, as OTLP over HTTP in JSON", ["url"]),
    }


def _alerts(target: dict[str, Any]) -> dict[str, Any]:
    freshness = {"type": "integer", "minimum": 1, "maximum": MAX_FRESHNESS_MILLIS}
    word = {"type": ["string", "number"]}
    share = "which share of the newest records may be refused, such as 1%"
    backlog = "how much input may be known and not committed, such as 10GiB"
    limits = {
        "freshness_millis": _or_reference("how long input may wait to be published", freshness),
        "rejects": _text(share, pattern=r"%\s*$|\$\{"),
        "backlog": {"type": ["string", "integer"], "description": backlog},
        "on": _or_reference("where alerts are sent", {"enum": list(WAYS)}),
        "command": {
            "anyOf": [word, {"type": "array", "items": word, "minItems": 1}],
            "description": "a program and its arguments, run without a shell",
        },
    }
    return _mapping({**limits, **target}, "when a run raises an alert, and where it is sent")


def _mapping(properties: dict[str, Any], description: str, required: list[str] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "additionalProperties": False, "properties": properties, "description": description}
    return {**schema, "required": required} if required else schema


def steps_schema(
    classes: Mapping[str, type], definitions: Mapping[str, Any], operator: Mapping[str, Any]
) -> dict[str, Any]:
    """The schema of the list of steps.

    Args:
        definitions: For each of them the schema of its properties.
        operator: The schemas of the keys `partition` and `partitioner` of an operator.
    """
    keys = {
        "name": _text("the operator's name; by default the short name or the class"),
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
    reference = _text("the name of an operator below 'operators'")
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
    known = _properties_of(short.class_name, definitions)
    if not short.property:
        return {"type": "object", "properties": known, "additionalProperties": False}
    value: dict[str, Any] = known[short.property]
    if not short.list_property:
        return value
    return {"if": {"type": "array"}, "then": known[short.list_property], "else": value}


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
    schema = _model_schema(cls, name)
    for inner, definition in schema.get("$defs", {}).items():
        definitions[f"{name}.{inner}"] = definition
    known = {key: dict(declared) for key, declared in schema.get("properties", {}).items()}
    found = {key: value for key, value in schema.items() if key != "$defs"} | {"properties": known}
    for each, variants in variants_of(property_model(cls)).items():
        notes = {key: known[each][key] for key in ("description", "default") if key in known[each]}
        known[each] = {**notes, **_variants_schema(variants, definitions, own_types)}
    meanings = meanings_of(cls)
    for each, property_schema in known.items():
        if each in meanings:
            property_schema.setdefault("description", meanings[each])
    if summary := summary_of(cls):
        found["description"] = summary
    return found


@cache
def _model_schema(cls: type, name: str) -> dict[str, Any]:
    """The schema of the properties of a class, with the definitions that it refers to; it stays as it is."""
    template = f"#/$defs/{name}.{{model}}"
    schema = property_model(cls).model_json_schema(by_alias=False, ref_template=template, schema_generator=_YamlSchema)
    found: dict[str, Any] = _or_from_environment(schema)
    return found


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
