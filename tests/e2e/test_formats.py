"""Formats with their options on Spark: one app reads a file of each, and publishes rejects."""

from __future__ import annotations

import base64
import inspect
import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from dagflow.engine.run import run
from dagflow.errors import DagflowError
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.spark import SparkRuntime
from tests.cli.processes import dagflow_command
from tests.operators.reader.test_block_processor_accounting import published
from tests.runs.format_cases import CASES, IS_TAGGED, NAME, is_tagged

pytestmark = [pytest.mark.spark, pytest.mark.e2e]


def write_app(place: Path, block_size: int) -> None:
    """Write an app with a splitter, a reader and writers for each case, and the files of all."""
    operators: dict[str, object] = {}
    streams: dict[str, object] = {}
    # A user's functions are in a module beside the app.
    (place / "checks.py").write_text(inspect.getsource(is_tagged))
    for number, case in enumerate(CASES):
        format = {key: "checks.is_tagged" if value == IS_TAGGED else value for key, value in case.format.items()}
        folder = place / f"in{number}"
        folder.mkdir()
        (folder / NAME).write_bytes(case.content)
        parallel = {"class": "RecordWriter", "partition": "parallel"}
        operators |= {
            f"split{number}": {
                "class": "FileSplitterInput",
                "properties": {"files": str(folder), "block_size": block_size, "batch_bytes": 0},
            },
            f"read{number}": {"class": "BlockReader", "properties": {"format": format, "max_readers": 2}},
            f"write{number}": {**parallel, "properties": {"path": f"out{number}", "file_name": "block"}},
            f"refuse{number}": {**parallel, "properties": {"path": f"refused{number}"}},
        }
        streams |= {
            f"b{number}": {
                "from": f"split{number}.blocks_metadata_output",
                "to": f"read{number}.blocks_metadata_input",
            },
            f"r{number}": {"from": f"read{number}.messages", "to": f"write{number}.input"},
            f"e{number}": {"from": f"read{number}.errors", "to": f"refuse{number}.input"},
        }
    app = {"name": "formats", "attributes": {"checkpoint": "journal"}, "operators": operators, "streams": streams}
    (place / "app.yaml").write_text(yaml.safe_dump(app, sort_keys=False))


@pytest.mark.nightly
def test_formats_with_options_publish_on_spark_what_references_give(tmp_path: Path) -> None:
    """Records, rejects and byte accounting agree with reference parsers, in --json and in the journal."""
    write_app(tmp_path, 50)
    run = dagflow_command(["run", "app.yaml", "--json"], cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    summary = json.loads(run.stdout)
    for number, case in enumerate(CASES):
        path = tmp_path / f"in{number}" / NAME
        expected = case.published.replace(NAME.encode(), str(path).encode())
        assert published(tmp_path / f"out{number}") == expected, case.label
        facts = map(json.loads, published(tmp_path / f"refused{number}").splitlines())
        found = sorted((each["url"], each["offset"], base64.b64decode(each["raw"])) for each in facts)
        assert found == [(str(path), offset, raw) for offset, raw in case.rejects], case.label
    assert summary["state"] == "completed"
    assert summary["rejected"] == sum(len(case.rejects) for case in CASES)
    assert summary["bytes"] == sum(len(case.content) for case in CASES)
    status = json.loads(dagflow_command(["status", "journal", "--json"], cwd=tmp_path).stdout)
    assert status["account"] == summary["account"]


APP = """
name: values
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: in, block_size: 64}}
  reader: {class: BlockReader, properties: {format: json_lines}}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""


def test_a_reject_fails_the_run_unless_it_is_taken_and_within_the_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, spark_context: Any
) -> None:
    """The error names the place and what to do; with a higher limit the run continues from there."""
    monkeypatch.chdir(tmp_path)

    def run_on_spark(*overrides: str) -> RunSnapshot:
        return run(load_app("app.yaml", overrides), runtime=lambda program: SparkRuntime(program, spark_context))

    (tmp_path / "in").mkdir()
    content = b'{"n": 1}\nno\n' * 20 + b'{"n": 2}\n' * 20
    (tmp_path / "in" / NAME).write_bytes(content)
    (tmp_path / "app.yaml").write_text(APP)
    with pytest.raises(DagflowError, match="not JSON") as failed:
        run_on_spark()
    assert f"{tmp_path / 'in' / NAME} offset 9 (2 bytes): not JSON" in str(failed.value)
    assert "add `rejects: DIRECTORY` to the app" in str(failed.value) and "run again" in str(failed.value)
    app = yaml.safe_load(APP)
    app["operators"]["rejects"] = {"class": "RecordWriter", "properties": {"path": "refused"}, "partition": "parallel"}
    app["streams"]["refused"] = {"from": "reader.errors", "to": "rejects.input"}
    (tmp_path / "app.yaml").write_text(yaml.safe_dump(app))
    with pytest.raises(DagflowError, match="records were refused, and max_rejects is 10%"):
        run_on_spark("reader.max_rejects=10%")
    assert published(tmp_path / "out") == published(tmp_path / "refused") == b""
    summary = run_on_spark("reader.max_rejects=20").to_json()
    lines = published(tmp_path / "refused").splitlines()
    assert sorted(json.loads(line)["offset"] for line in lines) == [9 + 12 * number for number in range(20)]
    assert (summary["rejected"], summary["records"]["reader.messages"]) == (20, 40)
    assert summary["account"] == {"bytes": 420, "records": 320, "delimiters": 60, "skipped": 0, "rejected": 40}
