"""What counts as gone when a task has not found a version, and of which file."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from dagflow.api.context import Skipped
from dagflow.engine.left_out import GoneVersions, require_gone
from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import StorageError
from dagflow.execution.messages import TaskResult
from dagflow.metrics.counters import Counters
from dagflow.plan.load import load_app
from dagflow.report.manifest import tracked_files, window_manifest
from dagflow.report.reading import status
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.properties.test_grown_files import published
from tests.serving import serving
from tests.web_server import WebServer

STORAGE = StorageContext.default()

APP = """\
name: sample
attributes: {{checkpoint: {folder}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {files}, block_size: 8}}}}
  reader: {{class: BlockReader, properties: {{min_readers: 1, max_readers: 1}}}}
  writer: {{class: RecordWriter, properties: {{path: "{folder}/out"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""


@pytest.fixture
def server() -> Iterator[WebServer]:
    """A web server."""
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by it")
    with serving(WebServer()) as server:
        yield server


def gone(url: str, size_bytes: int, file_id: int = 0) -> Skipped:
    """A range that a task has left out because it did not find the version."""
    return Skipped(url, 0, size_bytes, "missing", "deleted", size_bytes, file_id=file_id)


@pytest.mark.parametrize("code", [200, 403, 500, 503])
def test_a_version_is_gone_only_where_the_server_says_so(server: WebServer, code: int) -> None:
    """An answer that says neither is no proof, and a query is a part of the name."""
    server.files = {"/get?f=1": b"line\n", "/get?f=2": b"longer line\n"}
    for method in ("HEAD", "GET"):
        server.statuses[method, "/get?f=1"] = code
    with pytest.raises(StorageError, match="the driver sees it" if code == 200 else str(code)) as raised:
        require_gone([gone(f"{server.url}/get?f=1", 5)], STORAGE)
    assert "f=1" not in str(raised.value)
    require_gone([gone(f"{server.url}/get?f=2", 5), gone(f"{server.url}/get?f=3", 5)], STORAGE)


def test_what_is_no_file_any_more_is_a_version_that_is_gone(tmp_path: Path) -> None:
    """A pipe, a directory, or a file in place of its directory; what cannot be looked at is none of these."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "directory").mkdir()
    (tmp_path / "file").write_bytes(b"line\n")
    require_gone([gone(str(tmp_path / name), 5) for name in ("pipe", "directory", "file/below", "none")], STORAGE)
    (tmp_path / "loop").symlink_to("loop")
    for name, text in (("file", "the driver sees it"), ("loop", "cannot look at")):
        with pytest.raises(StorageError, match=text):
            require_gone([gone(str(tmp_path / name), 5)], STORAGE)


def test_files_whose_names_differ_in_the_query_are_two_files(server: WebServer, tmp_path: Path) -> None:
    """One changes while it is read, and is left out; the other one is read. No output as JSON shows a query."""
    lines = [b"line %d\n" % number for number in range(8)]
    server.files = {"/get?f=1": b"".join(lines[:4]), "/get?f=2": b"".join(lines[4:])}

    def act(method: str, path: str) -> None:
        # When something of it was read.
        if (method, path) == ("HEAD", "/get?f=1") and any(each[0] == "GET" for each in server.requests):
            server.files[path] = b"new\n"

    server.act = act
    files = json.dumps([f"{server.url}/get?f={number}" for number in (1, 2)])
    (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path, files=files))
    app = load_app(str(tmp_path / "app.yaml"))
    summary = run(app, RunOptions(), runtime=InlineRuntime)
    assert published(tmp_path) == [line.strip() for line in lines[4:]]
    assert {each.url for each in summary.left_out.newest} == {f"{server.url}/get?f=1"}
    checkpoint = f"{tmp_path}/journal"
    manifest = window_manifest(checkpoint, 1, STORAGE)
    tracked = tracked_files(checkpoint, f"{server.url}/*", STORAGE)
    assert [(each.part.url[-3:], each.ranges.state) for each in tracked] == [("f=1", "left out"), ("f=2", "read")]
    reported = [manifest.to_json(), status(checkpoint, STORAGE).to_json(), *(each.to_json() for each in tracked)]
    assert "f=" not in json.dumps(reported)
    assert run(app, RunOptions(), runtime=InlineRuntime).left_out == summary.left_out
    assert published(tmp_path) == [line.strip() for line in lines[4:]] + [b"new"]


def test_files_that_are_named_by_a_query_can_be_read_anew(server: WebServer, tmp_path: Path) -> None:
    """They are there, under their whole names."""
    server.files = {"/get?f=1": b"line\n"}
    files = json.dumps([f"{server.url}/get?f=1"])
    (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path, files=files))
    run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=InlineRuntime)
    again = run(load_app(str(tmp_path / "app.yaml")), RunOptions(fresh=True), runtime=InlineRuntime)
    assert again.windows == 1


def test_windows_that_were_emitted_by_then_leave_out_the_rest() -> None:
    """Windows that were emitted later read the version again, which may be back."""
    versions, lost = GoneVersions(STORAGE), gone("/in/a", 5)
    versions.committed(3, [lost, gone("/in/b", 5)], last_emitted=5)
    task = TaskResult(0, 0, Counters(), (), (), {}, {}, 0.0, read_in_part=frozenset({lost.version}))
    assert [versions.read_in_part(window_id, [task]) for window_id in (4, 5, 6)] == [{lost.version: lost}] * 2 + [{}]
    versions.committed(4, [], last_emitted=6)
    assert versions.read_in_part(5, [task]) == {lost.version: lost}
    versions.committed(5, [], last_emitted=6)
    assert versions.read_in_part(5, [task]) == {}
