"""Runs over files of a web server."""

from __future__ import annotations

from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import StorageError
from dagflow.plan.load import load_app
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from tests.properties.test_grown_files import published
from tests.serving import serving
from tests.web_server import WebServer

APP = """\
name: sample
attributes: {{checkpoint: {folder}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: ["{file}"], batch_bytes: 0, block_size: 64KiB}}}}
  reader: {{class: BlockReader, properties: {{min_readers: 2, max_readers: 2, on_error: {on_error}}}}}
  writer: {{class: RecordWriter, properties: {{path: "{folder}/out"}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}
"""


@pytest.mark.parametrize("way_out", ["a copy", "another server"])
def test_a_file_that_cannot_be_read_in_parts_is_read_as_a_copy(tmp_path: Path, way_out: str) -> None:
    """Or where its server has learned to send parts: each record once, over a window that failed."""
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by it")
    data = b"".join(b"line %07d\n" % number for number in range(20_000))

    def again(file: str, on_error: str = "fail") -> RunSnapshot:
        (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path, file=file, on_error=on_error))
        return run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=InlineRuntime)

    with serving(WebServer()) as server:
        server.files["/a"], server.has_ranges = data, False
        with pytest.raises(StorageError, match="sends the file whole") as raised:
            again(f"{server.url}/a")
        assert "or leave it out with on_error: skip on the reader, and read a copy" in raised.value.hint
        if way_out == "a copy":
            (tmp_path / "copy").write_bytes(data)
            left_out = again(str(tmp_path / "copy"), on_error="skip").left_out
            assert (left_out.bytes, {each.url for each in left_out.newest}) == (len(data), {f"{server.url}/a"})
        else:
            server.has_ranges = True
            assert again(f"{server.url}/a").left_out.ranges == 0
    assert published(tmp_path) == data.splitlines()


def test_a_file_is_read_when_its_server_gives_one_version_of_it(tmp_path: Path) -> None:
    """The driver sees the planned version, and tasks another one: nothing is left out, and then each record comes."""
    pytest.importorskip("aiohttp", reason="fsspec reads HTTP by it")
    data = b"".join(b"line %07d\n" % number for number in range(20_000))
    with serving(WebServer()) as server:
        server.files["/a"] = data
        (tmp_path / "app.yaml").write_text(APP.format(folder=tmp_path, file=f"{server.url}/a", on_error="fail"))

        def answer_by(method: str, path: str) -> None:
            server.headers = {"ETag": f'"{method}"'}

        server.act = answer_by
        with pytest.raises(StorageError, match=r"could not find this version .*and the driver sees it") as raised:
            run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=InlineRuntime)
        assert "inode" not in raised.value.hint
        server.act, server.headers = lambda method, path: None, {"ETag": '"HEAD"'}
        assert run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=InlineRuntime).left_out.ranges == 0
    assert published(tmp_path) == data.splitlines()
