"""Runs whose credentials a store stops to accept: files are not left out for that, and the next run reads them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.errors import CredentialsError
from dagflow.plan.load import load_app
from dagflow.report.open_rejects import RejectChoice
from dagflow.report.snapshot import RunSnapshot
from dagflow.runtime.local import InlineRuntime
from tests.nightly import by_day
from tests.properties.test_grown_files import published
from tests.s3_faults import Fault, faulty_store
from tests.storage.shared import put

APP = """\
name: sample
attributes:
  checkpoint: {folder}/journal
  storage: {{s3: {{endpoint_url: "{endpoint}", key: testing, secret: testing}}}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: ["{root}/in"], {splitter}}}}}
  reader: {{class: BlockReader, properties: {{min_readers: 1, max_readers: 1, on_error: skip{reader}}}}}
  writer: {{class: RecordWriter, properties: {{path: "{folder}/out"}}, partition: parallel}}{operators}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  records: {{from: reader.messages, to: writer.input}}{streams}
"""
PLAIN = {"reader": "", "operators": "", "streams": ""}
REFUSED = {
    "operators": '\n  refused: {class: RecordWriter, properties: {path: "FOLDER/refused"}, partition: parallel}',
    "streams": "\n  bad: {from: reader.errors, to: refused.input}",
}


@pytest.mark.parametrize("splitter", ["batch_bytes: 16MiB", "batch_bytes: 0, block_size: 64KiB"])
@pytest.mark.parametrize(("status", "code"), by_day(1, [(400, "ExpiredToken"), (403, "InvalidAccessKeyId")]))
def test_files_that_were_refused_come_with_good_credentials(
    s3_server: str, s3_root: str, tmp_path: Path, splitter: str, status: int, code: str
) -> None:
    """A plain refusal of one object is a file that cannot be read; one of the credentials ends the run."""
    for name in "abcd":
        put(f"{s3_root}/in/{name}", b"".join(b"%s %07d\n" % (name.encode(), number) for number in range(10_000)))
    with faulty_store(s3_server) as store:
        text = APP.format(folder=tmp_path, endpoint=store.url, root=s3_root, splitter=splitter, **PLAIN)
        (tmp_path / "app.yaml").write_text(text)

        def again() -> RunSnapshot:
            return run(load_app(str(tmp_path / "app.yaml")), RunOptions(), runtime=InlineRuntime)

        store.faults = [Fault("GET", "/in/[bc]", status, code)]
        with pytest.raises(CredentialsError, match=rf"are refused \({code}\): told.*\n *give valid credentials"):
            again()
        store.faults = [Fault("GET", "/in/b", 403, "AccessDenied")]
        left_out = again().left_out
    assert {each.url for each in left_out.newest} == {f"{s3_root}/in/b"}
    assert published(tmp_path) == [
        b"%s %07d" % (name, number) for name in (b"a", b"c", b"d") for number in range(10_000)
    ]


def test_refused_records_are_tried_again_with_good_credentials(s3_server: str, s3_root: str, tmp_path: Path) -> None:
    """A replay of them ends with the refusal, and does not say that none of them was accepted."""
    put(f"{s3_root}/in/a", b'{"n": 1}\n{"n": "x"}\n')
    parts = {name: text.replace("FOLDER", str(tmp_path)) for name, text in REFUSED.items()}
    with faulty_store(s3_server) as store:

        def again(format: str, rejects: RejectChoice | None = None) -> None:
            values = {"folder": tmp_path, "endpoint": store.url, "root": s3_root, "splitter": "batch_bytes: 0"}
            (tmp_path / "app.yaml").write_text(APP.format(**values, reader=f", format: {format}", **parts))
            run(load_app(str(tmp_path / "app.yaml")), RunOptions(rejects=rejects), runtime=InlineRuntime)

        again("{type: json_lines, columns: {n: int64}}")
        store.faults = [Fault("GET", "/in/a", 400, "ExpiredToken")]
        with pytest.raises(CredentialsError, match="ExpiredToken"):
            again("json_lines", RejectChoice())
        store.faults = []
        again("json_lines", RejectChoice())
    assert [json.loads(each)["n"] for each in published(tmp_path)] == ["x", 1]
