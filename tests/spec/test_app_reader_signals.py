"""The attributes that say where signals go."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from dagflow.spec.app_reader import is_http_url, read
from dagflow.spec.app_spec import AlertSettings, AppSpec, HttpTarget, LineageSettings
from dagflow.spec.json_schema import json_schema
from tests.spec.apps import VALID, problems_of
from tests.spec.test_json_schema import complaints


def with_attributes(attributes: str) -> str:
    """The app with these attributes."""
    return VALID.replace("name: sample", f"name: s\nattributes: {attributes}")


def spec_of(tmp_path: Path, attributes: str, **environ: str) -> AppSpec:
    """The app with these attributes, which have no mistake."""
    file = tmp_path / "app.yaml"
    file.write_text(with_attributes(attributes))
    spec, problems = read(file, environ=environ)
    assert spec is not None and not problems, problems
    return spec


def test_alerts_show_their_limits_and_receivers(tmp_path: Path) -> None:
    """A webhook with its headers, a command with its arguments, or only limits for `dagflow check`."""
    limits = "freshness_millis: 600000, rejects: 1%, backlog: 10GiB"
    webhook = spec_of(tmp_path, f"{{alerts: {{{limits}, on: webhook, url: 'https://x/y', headers: {{A: b}}}}}}")
    expected = AlertSettings(600_000, 0.01, 10 << 30, HttpTarget("https://x/y", {"A": "b"}))
    assert webhook.attributes.alerts == expected
    command = spec_of(tmp_path, "{alerts: {rejects: 0%, on: command, command: [./page, 7]}}")
    assert command.attributes.alerts == AlertSettings(rejects=0.0, command=("./page", "7"))
    assert spec_of(tmp_path, "{alerts: {backlog: 5}}").attributes.alerts == AlertSettings(backlog_bytes=5)
    assert spec_of(tmp_path, "{}").attributes.alerts is None


def test_a_header_whose_variable_is_missing_has_one_mistake(tmp_path: Path) -> None:
    """What the variable would hold is not known, so nothing is said about it."""
    attributes = "{traces: {url: 'http://c', headers: {Authorization: 'Bearer ${TOKEN}'}}}"
    (problem,) = problems_of(tmp_path, with_attributes(attributes))
    assert "TOKEN" in problem and "ASCII" not in problem


def test_lineage_and_traces_name_a_url(tmp_path: Path) -> None:
    """The namespace of the job has a default."""
    attributes = spec_of(tmp_path, "{lineage: {url: 'http://m:5000/l'}, traces: {url: 'http://c:4318/t'}}").attributes
    assert attributes.lineage == LineageSettings(HttpTarget("http://m:5000/l"), "dagflow")
    assert attributes.traces == HttpTarget("http://c:4318/t")


def test_addresses_and_headers_are_never_shown(tmp_path: Path) -> None:
    """Neither in the attributes' own text nor in messages, also where they stand in the file."""
    spec = spec_of(tmp_path, "{traces: {url: 'https://u:p4ss@host/t0ken', headers: {Key: '${K}'}}}", K="s3cret")
    assert spec.redact("at https://u:p4ss@host/t0ken with s3cret") == "at *** with ${K}"
    assert "s3cret" not in repr(spec) and "t0ken" not in repr(spec)
    assert str(spec.attributes.traces) == "https://host"


def test_a_secret_address_does_not_withhold_what_has_its_host_or_scheme(tmp_path: Path) -> None:
    """What is long enough to be a token in it does, and the credential in a header."""
    url, token = "https://hooks.example/services/T0KEN9xYz7QwErTy12", "Bearer s3cr3tOfMine"
    attributes = f"{{traces: {{url: '${{U}}', headers: {{Authorization: '{token}', Accept: json}}}}}}"
    spec = spec_of(tmp_path, attributes, U=url)
    text = "https://hooks.example/services and s3://bucket: Bearer of json refused"
    assert spec.redact(text) == text
    assert spec.redact(f"sent to {url}") == "sent to ${U}"
    assert "withheld" in spec.redact("at .../T0KEN9xYz")
    assert spec.redact("with s3cr3tOfMine") == "with ***"


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ("{alerts: {freshnes_millis: 5}}", "'alerts' has no 'freshnes_millis'; did you mean 'freshness_millis'?"),
        ("{alerts: {freshness_millis: 0}}", "'freshness_millis' of 'alerts': expected a whole number from 1"),
        (
            "{alerts: {rejects: 0.01}}",
            "'rejects' of 'alerts': expected a share from 0% to 100%, such as 1%, got the number",
        ),
        ("{alerts: {rejects: 101%}}", "expected a share from 0% to 100%"),
        ("{alerts: {backlog: lots}}", "'backlog' of 'alerts': expected a size such as 10GiB, got 'lots'"),
        (
            "{alerts: {on: webhok, url: 'http://x'}}",
            "expected webhook or command, got 'webhok'; did you mean 'webhook'?",
        ),
        ("{alerts: {on: webhook}}", "2:22: 'url' of 'alerts' is missing"),
        ("{alerts: {on: command}}", "'command' of 'alerts' is missing"),
        (
            "{alerts: {on: command, command: []}}",
            "expected a program, or a list of it and its arguments, got a list",
        ),
        ("{alerts: {on: command, command: x, url: 'http://x'}}", "'url' of 'alerts' does not go with 'on: command'"),
        ("{alerts: {url: 'http://x'}}", "'url' of 'alerts' needs 'on: webhook'"),
        ("{alerts: {}}", "'alerts' is empty"),
        ("{lineage: {url: 'ftp://x'}}", "'url' of 'lineage': expected a URL that begins with http:// or https://"),
        ("{lineage: 'http://x'}", "'lineage': expected a mapping"),
        ("{traces: {headers: {A: b}}}", "'url' of 'traces' is missing"),
        ("{traces: {url: 'http://x', headers: {'a b': c}}}", "this is no name of a header"),
        (
            '{traces: {url: "http://x", headers: {a: "c\\nd"}}}',
            "header 'a' of 'traces': expected one line of ASCII text",
        ),
    ],
)
def test_a_mistake_is_named_at_its_place(tmp_path: Path, attributes: str, expected: str) -> None:
    """And what an address should have been does not show what it was."""
    problems = problems_of(tmp_path, with_attributes(attributes))
    assert any(expected in problem for problem in problems), problems


@pytest.mark.parametrize(
    ("url", "is_one"),
    [
        ("http://host", True),
        ("https://[::1]:4318/v1/traces", True),
        ("http://host:0/", False),
        ("http://host:99999/", False),
        ("http:///path", False),
        ("http://[x/", False),
        ("http://a b/", False),
        ("http://a/\n", False),
        ("host:80", False),
    ],
)
def test_a_url_of_http_names_a_host(url: str, is_one: bool) -> None:
    """What a request could not be sent to is refused before anything runs."""
    assert is_http_url(url) == is_one


@pytest.mark.parametrize(
    ("attributes", "fits"),
    [
        ("{alerts: {freshness_millis: 5, rejects: 1%, backlog: 10GiB, on: webhook, url: 'https://x'}}", True),
        ("{alerts: {on: command, command: [a, 1], freshness_millis: '${F}'}}", True),
        ("{lineage: {url: '${U}', namespace: n}, traces: {url: 'http://x', headers: {a: b}}}", True),
        ("{alerts: {on: pager}}", False),
        ("{lineage: {namespace: n}}", False),
        ("{traces: {url: x}}", False),
    ],
)
def test_editors_know_the_attributes(attributes: str, fits: bool) -> None:
    """The JSON Schema takes what the reader takes."""
    # PyYAML reads YAML 1.1, where `on` is a truth value; editors read 1.2.
    app: dict[str, Any] = yaml.safe_load(attributes.replace("on:", "'on':"))
    schema = {**json_schema()["properties"]["attributes"], "$defs": json_schema()["$defs"]}
    assert (not complaints(schema, app)) == fits
