"""`dagflow metrics`: the metrics of a checkpoint for Prometheus."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.cli.commands.inspected_app import folder, invoke, journal
from tests.cli.processes import modules_loaded_by
from tests.report.test_endpoints_metrics import of_names

__all__ = ["folder", "journal"]


@pytest.mark.parametrize("named", ["journal", "app.yaml"])
def test_the_metrics_of_a_checkpoint_are_what_its_journal_says(journal: Path, named: str) -> None:
    """By its URL, or by the app that names it; records are counted for each port of each operator."""
    code, out, err = invoke("metrics", named)
    assert (code, err) == (0, "")
    found = of_names(out)
    assert found["dagflow_records_total reader messages"] == 4
    assert found["dagflow_records_total filter output"] == 3
    assert found["dagflow_input_bytes_total"] == found["dagflow_content_bytes_total"] == 21
    assert sum(value for name, value in found.items() if name.startswith("dagflow_accounted_bytes_total")) == 21


def test_a_file_of_metrics_is_replaced_as_a_whole(journal: Path) -> None:
    """For a collector that belongs to another user; nothing else is left in its directory."""
    file = journal.parent / "textfile" / "sample.prom"
    file.parent.mkdir()
    file.write_text("old")
    assert invoke("metrics", "journal", "-o", str(file)) == (0, "", "")
    assert of_names(file.read_text())["dagflow_checkpoint_readable"] == 1
    assert os.listdir(file.parent) == ["sample.prom"]
    assert file.stat().st_mode & 0o777 == 0o644


def test_a_checkpoint_that_is_gone_is_reported_as_unreadable(journal: Path) -> None:
    """In the file too, so that an alert fires; the command ends with 1."""
    file = journal.parent / "sample.prom"
    code, out, err = invoke("metrics", "gone", "-o", str(file))
    assert (code, out) == (1, "")
    assert "there is no journal" in err
    assert of_names(file.read_text()) == {"dagflow_checkpoint_readable": 0}


def test_a_file_that_cannot_be_written_ends_the_command(journal: Path) -> None:
    """With the place and what to do."""
    code, _, err = invoke("metrics", "journal", "-o", "absent/sample.prom")
    assert code == 1
    assert "absent/sample.prom: cannot write the metrics: No such file or directory" in err


def test_metrics_need_no_spark(journal: Path) -> None:
    """The command imports neither PySpark nor a web server."""
    assert not modules_loaded_by(["metrics", "journal"], cwd=journal.parent) & {"pyspark", "py4j", "starlette"}
