"""The JSON Schema of the attributes `alerts`, `lineage` and `traces`."""

from __future__ import annotations

from typing import Any

from dagflow.spec.property_schema import FROM_ENVIRONMENT
from dagflow.spec.signal_reader import MAX_FRESHNESS_MILLIS, WAYS


def signals_schema() -> dict[str, Any]:
    """The schema of each attribute, by name."""
    target = {
        "url": {
            "type": "string",
            "pattern": r"^https?://|\$\{",
            "description": "the whole URL that events are sent to",
        },
        "headers": {
            "type": "object",
            "additionalProperties": {"type": ["string", "number"]},
            "description": "headers of each request; credentials come from ${NAME}",
        },
    }
    namespace = {"type": "string", "minLength": 1, "default": "dagflow", "description": "the namespace of the job"}
    return {
        "alerts": _alerts(target),
        "lineage": _mapping({**target, "namespace": namespace}, "where OpenLineage events are sent", ["url"]),
        "traces": _mapping(target, "where traces are sent, as OTLP over HTTP in JSON", ["url"]),
    }


def _alerts(target: dict[str, Any]) -> dict[str, Any]:
    freshness = {"type": "integer", "minimum": 1, "maximum": MAX_FRESHNESS_MILLIS}
    word = {"type": ["string", "number"]}
    limits = {
        "freshness_millis": {
            "anyOf": [freshness, FROM_ENVIRONMENT],
            "description": "how long input may wait to be published",
        },
        "rejects": {
            "type": "string",
            "pattern": r"%\s*$|\$\{",
            "description": "which share of the newest records may be refused, such as 1%",
        },
        "backlog": {
            "type": ["string", "integer"],
            "description": "how much input may be known and not committed, such as 10GiB",
        },
        "on": {"anyOf": [{"enum": list(WAYS)}, FROM_ENVIRONMENT], "description": "where alerts are sent"},
        "command": {
            "anyOf": [word, {"type": "array", "items": word, "minItems": 1}],
            "description": "a program and its arguments, run without a shell",
        },
    }
    return _mapping({**limits, **target}, "when a run raises an alert, and where it is sent")


def _mapping(properties: dict[str, Any], description: str, required: list[str] | None = None) -> dict[str, Any]:
    schema = {"type": "object", "additionalProperties": False, "properties": properties, "description": description}
    return {**schema, "required": required} if required else schema
