"""The dashboard of Grafana asks only for metrics that there are."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from dagflow.report.endpoints import LABELS, METRICS

BOARD: dict[str, Any] = json.loads((Path(__file__).parents[1] / "docs" / "grafana" / "dagflow.json").read_text())
TARGETS: list[dict[str, Any]] = [target for panel in BOARD["panels"] for target in panel["targets"]]
LABELS_BY_SAMPLE = {name: {*LABELS, *metric.labels} for metric in METRICS for name in metric.samples}
SAMPLE = re.compile(r"\bdagflow_\w+")


@pytest.mark.parametrize("target", TARGETS, ids=[target["expr"][:40] for target in TARGETS])
def test_an_expression_asks_for_documented_metrics_and_labels(target: dict[str, Any]) -> None:
    """Names in the expression, in its selectors and groups, and in the legend of its lines."""
    asked = SAMPLE.findall(target["expr"])
    assert asked
    assert set(asked) <= set(LABELS_BY_SAMPLE)
    labels = set.intersection(*(LABELS_BY_SAMPLE[name] for name in asked))
    used = re.findall(r"(\w+)\s*(?:=~|=\")", target["expr"]) + re.findall(r"\{\{(\w+)\}\}", target["legendFormat"])
    grouped = [
        name.strip() for names in re.findall(r"\b(?:by|on) \(([^)]*)\)", target["expr"]) for name in names.split(",")
    ]
    assert {*used, *grouped} <= labels


def test_the_choices_of_the_dashboard_ask_for_documented_metrics() -> None:
    """The app and the checkpoint; the data source is the reader's own."""
    queries = [each["definition"] for each in BOARD["templating"]["list"] if each["type"] == "query"]
    assert len(queries) == 2
    for query in queries:
        assert set(SAMPLE.findall(query)) <= set(LABELS_BY_SAMPLE)
    sources = {target["datasource"]["uid"] for target in TARGETS}
    assert sources == {"${source}"}


def test_what_a_person_asks_first_is_on_the_dashboard() -> None:
    """Backlog, delay, phases of windows, records, rejects, the last commit, partitions and tables."""
    shown = {name for target in TARGETS for name in SAMPLE.findall(target["expr"])}
    needed = ["backlog_bytes", "oldest_unpublished_seconds", "window_seconds_sum", "records_total", "rejects_total"]
    needed += ["last_commit_timestamp_seconds", "partitions", "table_lag_seconds", "run_state"]
    assert {f"dagflow_{name}" for name in needed} <= shown
