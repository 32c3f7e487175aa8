"""The JSON Schema of apps."""

from __future__ import annotations

import json

import yaml

from tests.cli.commands.inspected_app import APP, invoke


def test_the_schema_accepts_an_app() -> None:
    """It is JSON, and names the parts that an app has."""
    code, out, err = invoke("schema")
    assert (code, err) == (0, "")
    assert set(yaml.safe_load(APP)) <= set(json.loads(out)["properties"])
