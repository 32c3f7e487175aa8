"""Spark's settings for one machine and for many."""

from __future__ import annotations

import os
import sys

import pytest

from dagflow.errors import DagflowError
from dagflow.runtime.spark_settings import (
    AUTHENTICATE,
    CLUSTER_SETTINGS,
    process_settings,
    process_variables,
    protection,
    require_secret,
    settings_for,
)

EXCLUSION = "spark.excludeOnFailure.enabled"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]"])
def test_one_machine_is_not_treated_as_a_cluster(master: str) -> None:
    """No second attempts on the same cores, no exclusion of the only host."""
    assert settings_for(master, {}).keys().isdisjoint(CLUSTER_SETTINGS)


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_a_cluster_gets_second_attempts_and_gives_executors_back(master: str) -> None:
    """Both are on unless a setting turns them off."""
    assert settings_for(master, {})["spark.speculation"] == "true"
    assert settings_for(master, {})["spark.dynamicAllocation.enabled"] == "true"
    assert settings_for(master, {"spark.speculation": "false"})["spark.speculation"] == "false"


def test_hosts_are_not_left_out_where_spark_would_refuse_to() -> None:
    """With as few attempts as one host may use up Spark starts no job; explicit settings are passed on."""
    assert settings_for("yarn", {})[EXCLUSION] == "true"
    assert settings_for("yarn", {"spark.task.maxFailures": "4"})[EXCLUSION] == "false"
    assert settings_for("yarn", {"spark.task.maxFailures": "4", EXCLUSION: "true"})[EXCLUSION] == "true"


def test_a_local_run_is_closed_and_a_cluster_as_it_was_set_up() -> None:
    """A cluster that knows no secret could not be talked to with one; where there is one, all is encrypted."""
    assert settings_for("local[2]", {})[AUTHENTICATE] == "true"
    assert settings_for("local[2]", {AUTHENTICATE: "false"})[AUTHENTICATE] == "false"
    assert AUTHENTICATE not in settings_for("spark://host:7077", {})
    assert protection({}) == protection({AUTHENTICATE: "false"}) == {}
    assert protection({AUTHENTICATE: "true"}) == {"spark.network.crypto.enabled": "true"}
    off = {"spark.network.crypto.enabled": "false"}
    assert protection({AUTHENTICATE: "true", **off}) == off


@pytest.mark.parametrize("name", ["spark.authenticate.secret", "spark.authenticate.secret.file"])
def test_a_standalone_cluster_that_authenticates_needs_a_secret(name: str) -> None:
    """Spark would fail while it starts, and say so in its log only; other masters make up a secret themselves."""
    with pytest.raises(DagflowError, match=r"spark\.authenticate\.secret is not"):
        require_secret("spark://host:7077", {AUTHENTICATE: "true"})
    require_secret("spark://host:7077", {AUTHENTICATE: "true", name: "long"})
    require_secret("spark://host:7077", {})
    require_secret("yarn", {AUTHENTICATE: "true"})


def test_a_name_for_displays_of_spark_is_taken() -> None:
    """Without one Spark shows the app's own."""
    assert process_settings("a", "local[2]", {})["spark.app.name"] == "dagflow a"
    assert process_settings("a", "local[2]", {"spark.app.name": "nightly"})["spark.app.name"] == "nightly"


def test_what_one_run_sets_for_spark_does_not_reach_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster whose driver is said to be on localhost cannot reach it, and a Python is chosen for one run."""
    for name in ("SPARK_LOCAL_IP", "PYSPARK_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    local = process_settings("a", "local[2]", {"spark.pyspark.python": "/other/python"})
    assert process_variables(local) == {"SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": "/other/python"}
    cluster = process_settings("b", "spark://far:7077", {})
    assert process_variables(cluster) == {"PYSPARK_PYTHON": sys.executable}
    assert not {"SPARK_LOCAL_IP", "PYSPARK_PYTHON"} & os.environ.keys()


def test_what_the_environment_says_of_spark_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run takes the variables as they are."""
    monkeypatch.setenv("SPARK_LOCAL_IP", "10.0.0.7")
    monkeypatch.setenv("PYSPARK_PYTHON", "/their/python")
    found = process_variables(process_settings("a", "local[2]", {}))
    assert found == {"SPARK_LOCAL_IP": "10.0.0.7", "PYSPARK_PYTHON": "/their/python"}
