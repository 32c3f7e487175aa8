"""The JSON Schema accepts what validate accepts, as far as a schema can tell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package that nothing else needs
import pytest
import yaml

from dagflow.spec.json_schema import json_schema, module_schema

APPS = sorted(Path("apps").glob("*.yaml"))


@pytest.fixture(scope="module")
def validator() -> Any:
    """A validator of the schema, which is itself valid."""
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def app(**changes: Any) -> dict[str, Any]:
    splitter = {"class": "FileSplitterInput", "properties": {"files": "data", "block_size": "64MiB"}}
    reader = {"class": "BlockReader", "properties": {"max_readers": "${N:-4}"}, "partition": 4}
    streams = {"blocks": {"from": "a.out", "to": ["b.in"]}}
    return {"name": "x", "operators": {"a": splitter, "b": reader}, "streams": streams, **changes}


@pytest.mark.parametrize("file", APPS, ids=[file.stem for file in APPS])
def test_the_apps_that_come_along_fit_the_schema(validator: Any, file: Path) -> None:
    """What a newcomer copies is shown without complaint in an editor."""
    assert list(validator.iter_errors(yaml.safe_load(file.read_text()))) == []


def test_sizes_lists_and_references_to_the_environment_fit(validator: Any) -> None:
    """YAML may hold more than the checked value's type."""
    assert list(validator.iter_errors(app())) == []


@pytest.mark.parametrize(
    "wrong",
    [
        app(nmae="x"),
        app(name="No Name"),
        app(operators={}),
        app(operators={"a": {"klass": "BlockReader"}}),
        app(operators={"a": {"class": "BlockRaeder"}}),
        app(operators={"a": {"class": "BlockReader", "properties": {"max_reader": 4}}}),
        app(operators={"a": {"class": "BlockReader", "properties": {"max_readers": "many"}}}),
        app(operators={"a": {"class": "BlockReader", "properties": {"max_readers": 0}}}),
        app(operators={"a": {"class": "FileSplitterInput", "properties": {"files": "x", "block_size": "5 parsecs"}}}),
        app(operators={"a": {"class": "FileSplitterInput", "properties": {}}}),
        app(operators={"a": {"class": "BlockReader", "partition": 0}}),
        app(streams={"s": {"from": "a.b"}}),
        app(streams={"s": {"from": "a", "to": "b.c"}}),
        app(attributes={"window_millis": 0}),
        app(attributes={"durability": "powr"}),
    ],
)
def test_what_validate_refuses_does_not_fit(validator: Any, wrong: dict[str, Any]) -> None:
    """Unknown names, wrong types, values out of range, ports that are none."""
    assert not validator.is_valid(wrong)


def test_exchanges_unions_and_modules_fit() -> None:
    """What an app says of how records travel, and of modules, is known to editors; a module's file too."""
    schema = jsonschema.Draft202012Validator(json_schema())
    keyed = {"class": "BlockReader", "partition": {"by": "host", "count": 3}}
    module = {"module": "m.yaml", "properties": {"anything": 1}}
    streams = {"s": {"from": ["a.x", "b.x"], "to": "c.y", "broadcast": True}}
    assert schema.is_valid(app(operators={"a": keyed, "m": module}, streams=streams))
    assert not schema.is_valid(app(operators={"a": {**keyed, "partition": {"count": 3}}}))
    assert not schema.is_valid(app(operators={"m": {**module, "class": "BlockReader"}}))
    inside = {"operators": {"f": {"class": "RecordFilter", "properties": {"keep": {"prefix": "a"}}}}}
    exposing = {**inside, "inputs": {"x": "f.input"}, "outputs": {"y": ["f.output"]}, "properties": {"p": "f.keep"}}
    of_module = jsonschema.Draft202012Validator(module_schema())
    assert of_module.is_valid(inside) and of_module.is_valid(exposing)
    assert not of_module.is_valid({**inside, "name": "x"}) and not of_module.is_valid({"inputs": {}})
