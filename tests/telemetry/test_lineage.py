"""Runs as events of OpenLineage, checked with its published schemas."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]  # its stubs are a package that nothing else needs
import pytest
from openlineage.client.event_v2 import Dataset
from openlineage.client.serde import Serde
from referencing import Registry, Resource

from dagflow.engine.preparation import dataset_locations
from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from dagflow.spec.app_spec import HttpTarget, LineageSettings
from dagflow.telemetry.lineage import MOST_EVENT_BYTES, MOST_EVENTS, LineageReporter, dataset_name, datasets_of
from dagflow.telemetry.run_signals import CLOSE_S
from tests.engine.test_driver import crashing
from tests.telemetry.app import orders
from tests.telemetry.http_receiver import receiving

SCHEMAS = {
    schema["$id"]: schema
    for schema in (json.loads(file.read_text()) for file in (Path(__file__).parent / "openlineage").glob("*.json"))
}
REGISTRY: Registry[Any] = Registry().with_resources(
    [(name, Resource.from_contents(schema)) for name, schema in SCHEMAS.items()]
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def require_valid(event: Any) -> None:
    """Refuse an event, or a facet in it, that its own schema does not allow."""
    check(event, event["schemaURL"])
    parts = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for part in parts:
        for key in ("facets", "inputFacets", "outputFacets"):
            for facet in part.get(key, {}).values():
                check(facet, facet["_schemaURL"])


def check(value: Any, url: str) -> None:
    """Check with the schema of a URL, which must be one of those that were published."""
    assert url.partition("#")[0] in SCHEMAS
    validator = jsonschema.Draft202012Validator(
        {"$ref": url}, registry=REGISTRY, format_checker=jsonschema.FormatChecker()
    )
    assert [error.message for error in validator.iter_errors(value)] == []


def test_a_run_is_a_start_and_an_end(folder: Path) -> None:
    """Both events name one run of one job, with what was read and published."""
    with receiving() as server:
        run(orders(folder, f"lineage: {{url: '{server.url}', namespace: shop}}"), runtime=InlineRuntime)
    start, end = server.bodies
    for event in server.bodies:
        require_valid(event)
    assert (start["eventType"], end["eventType"]) == ("START", "COMPLETE")
    assert start["run"]["runId"] == end["run"]["runId"]
    assert end["job"]["namespace"], end["job"]["name"] == ("shop", "orders")
    assert [each["name"] for each in end["inputs"]] == [str(folder / "in")]
    assert [each["name"] for each in end["outputs"]] == [str(folder / "out/rows"), str(folder / "out/sums")]
    statistics = end["inputs"][0]["inputFacets"]["inputStatistics"]
    assert (statistics["rowCount"], statistics["fileCount"]) == (12, 1)


def test_a_failed_run_reports_why(folder: Path) -> None:
    """And one that goes on with its work is a run of its own."""
    with receiving() as server:
        plan = f"lineage: {{url: '{server.url}'}}"
        with pytest.raises(DagflowError, match="the lights went out"):
            run(orders(folder, plan), runtime=crashing(2))
        run(orders(folder, plan), runtime=InlineRuntime)
    kinds = [event["eventType"] for event in server.bodies]
    assert kinds == ["START", "FAIL", "START", "COMPLETE"]
    require_valid(server.bodies[1])
    assert server.bodies[1]["run"]["facets"]["errorMessage"]["message"] == "the lights went out"
    assert server.bodies[1]["run"]["runId"] != server.bodies[2]["run"]["runId"]


def test_columns_are_followed_from_input_to_output(folder: Path) -> None:
    """Through what is computed, renamed and grouped."""
    plan = orders(folder)
    (read,), (rows, sums) = datasets_of(plan, dataset_locations(plan))
    assert columns_of(read) == {"n": "int64", "s": "string"}
    of_input = ("file", str(folder / "in"))
    assert columns_of(rows) == {"n": "int64", "label": "string", "sum": "int64"}
    assert sources_of(rows) == {"n": [(*of_input, "n")], "label": [(*of_input, "s")], "sum": [(*of_input, "n")]}
    assert list(columns_of(sums)) == ["key", "total", "rows"]
    # A number of records is made of no column.
    assert sources_of(sums) == {"key": [(*of_input, "s")], "total": [(*of_input, "n")]}


def columns_of(dataset: Dataset) -> dict[str, str]:
    """The types of a dataset's columns."""
    return {field["name"]: field["type"] for field in Serde.to_dict(dataset)["facets"]["schema"]["fields"]}


def sources_of(dataset: Dataset) -> dict[str, list[tuple[str, str, str]]]:
    """The columns of inputs that each column of a dataset is made of."""
    fields = Serde.to_dict(dataset)["facets"]["columnLineage"]["fields"]
    return {
        column: [(part["namespace"], part["name"], part["field"]) for part in described["inputFields"]]
        for column, described in fields.items()
    }


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("/data/in", ("file", "/data/in")),
        ("file:///data/in/", ("file", "/data/in")),
        ("s3://bucket/a/b", ("s3://bucket", "a/b")),
        ("s3://bucket", ("s3://bucket", "/")),
        ("gs://bucket/a", ("gs://bucket", "a")),
        ("hdfs://name:8020/a/b", ("hdfs://name:8020", "/a/b")),
        ("abfss://box@account.dfs.core.windows.net/a", ("abfss://box@account.dfs.core.windows.net", "a")),
        ("https://me:secret@host/a", ("https://***@host", "a")),
    ],
)
def test_a_location_is_named_as_openlineage_says(url: str, expected: tuple[str, str]) -> None:
    """Without credentials."""
    assert dataset_name(url) == expected


def test_events_are_few_and_small_whatever_is_read(folder: Path) -> None:
    """A run of months has no more than 20; many long columns are left out of an event that would be too large."""
    now_s = 0.0
    columns = ", ".join(f"'{'c' * 200}{n}': string" for n in range(300))
    plan = orders(folder).attributes
    (folder / "app.yaml").write_text((folder / "app.yaml").read_text().replace("n: int64", f"n: int64, {columns}"))
    from_file = load_app("app.yaml")
    assert from_file.attributes == plan
    with receiving() as server:
        settings = LineageSettings(HttpTarget(server.url))
        reporter = LineageReporter(settings, from_file, dataset_locations(from_file), RUN_ID, "1", now=lambda: now_s)
        reporter.started()
        for _ in range(100_000):
            now_s += 3600.0
            reporter.progress(RunSnapshot("orders", files=1_000_000))
        reporter.ended(RunSnapshot("orders"), "completed", "", time.monotonic() + CLOSE_S)
    assert 3 < len(server.bodies) <= MOST_EVENTS
    assert max(server.sizes) <= MOST_EVENT_BYTES
    for event in server.bodies:
        require_valid(event)
    assert [event["eventType"] for event in server.bodies][1:-1] == ["RUNNING"] * (len(server.bodies) - 2)
    assert server.bodies[0]["inputs"][0]["name"] == str(folder / "in")


RUN_ID = "2f1b8a9e-8a51-4a55-9d29-1a4e6d3f7c11"
