"""The source ranges that are recorded for each output file, against where its records really are."""

from __future__ import annotations

import contextlib
import csv
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from dagflow.engine.run import run
from dagflow.engine.run_setup import RunOptions
from dagflow.plan.load import load_app
from dagflow.report.manifest import PublishedFile, WindowManifest, manifests, tracked_files
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from tests.nightly import by_day

STORAGE = StorageContext.default()
APP = """\
name: provenance
attributes: {checkpoint: journal}
operators:
  splitter: {class: FileSplitterInput, properties: {files: [in], block_size: 60, blocks_threshold: 7, BATCHING}}
  reader: {class: BlockReader, properties: {min_readers: 2, max_readers: 2, format: FORMAT}}
  filter: {class: RecordFilter, properties: {drop: {prefix: "#"}}, partition: parallel}
  writer: {class: RecordWriter, properties: {path: out, WRITER}, partition: PARTITION}
  errors: {class: RecordWriter, properties: {path: errors}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: filter.input}
  kept: {from: filter.output, to: writer.input}
  refused: {from: reader.errors, to: errors.input}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A working directory with files of many blocks, in some of which every record is dropped, and small ones."""
    (tmp_path / "in").mkdir()
    for name, count in {"a": 70, "b": 3, "c": 40, "d": 1, "e": 2}.items():
        lines = [("#" if 10 < n < 30 else "") + f"{name}-{n}-{'x' * (n % 9)}" for n in range(count)]
        (tmp_path / "in" / name).write_text("\n".join(lines) + "\n")
    with contextlib.chdir(tmp_path):
        yield tmp_path


def finish(app: str = APP, **changes: str) -> list[WindowManifest]:
    """Run an app with some changes; return the manifests of its windows."""
    usual = {"BATCHING": "batch_bytes: 0", "FORMAT": "lines", "WRITER": "file_name: part", "PARTITION": "parallel"}
    for key, value in (usual | changes).items():
        app = app.replace(key, value)
    Path("app.yaml").write_text(app)
    run(load_app("app.yaml"), RunOptions(), runtime=InlineRuntime)
    return list(manifests("journal", STORAGE))


def origins_of(output: PublishedFile) -> list[tuple[str, int]]:
    """The file and offset at which each record of an output file begins, by looking it up in the input."""
    path = Path(output.url)
    if path.suffix == ".parquet":
        records = pq.read_table(path).column(0).to_pylist()
    elif path.suffix == ".csv":
        records = [row[0].encode() for row in list(csv.reader(path.read_text().splitlines()))[1:]]
    elif path.suffix == ".jsonl":
        records = [json.loads(line)["record"].encode() for line in path.read_bytes().splitlines()]
    else:
        records = path.read_bytes().splitlines()
    found = []
    for record in records:
        name = str(Path("in", record[:1].decode()).absolute())
        found.append((name, (b"\n" + Path(name).read_bytes()).index(b"\n" + record + b"\n")))
    return found


def require_exact(windows: list[WindowManifest]) -> list[PublishedFile]:
    """Require that each output names the ranges of its records, no block without one of them, and no byte twice."""
    outputs = []
    for manifest in windows:
        for output in manifest.outputs:
            outputs.append(output)
            assert manifest.provenance_of(output) == "exact"
            origins = origins_of(output)
            ranges = [(each.url, each.start, each.end) for each in manifest.sources_of(output)]
            assert len(set(ranges)) == len(ranges)
            for url, offset in origins:
                assert sum(name == url and start <= offset < end for name, start, end in ranges) == 1
            for name, start, end in ranges:
                blocks = range(start - start % 60, end, 60)
                for block in blocks:
                    assert any(url == name and max(block, start) <= at < min(block + 60, end) for url, at in origins)
    return outputs


@pytest.mark.parametrize(
    "writer", by_day(2, ["max_bytes: 1MiB", "max_bytes: 50", "format: csv, max_bytes: 9", "format: parquet"])
)
@pytest.mark.parametrize("batching", ["batch_bytes: 0", "batch_bytes: 2KiB"])
def test_each_part_names_the_ranges_of_its_records(folder: Path, writer: str, batching: str) -> None:
    """Also where a file is full in the middle of a block, and of small files that are read together."""
    outputs = require_exact(finish(WRITER=writer, BATCHING=batching))
    assert len(outputs) > 5


@pytest.mark.parametrize("writer", ["", ", format: json_lines", ", format: {type: csv, compression: zstd}"])
def test_a_file_of_a_block_names_that_block(folder: Path, writer: str) -> None:
    """One input each, also where no record of the block was kept."""
    windows = finish(WRITER="file_name: block" + writer)
    ranges = []
    for manifest in windows:
        for output in manifest.outputs:
            [source] = manifest.sources_of(output)
            assert (source.blocks, manifest.provenance_of(output)) == (1, "exact")
            assert source.end - source.start <= 60
            ranges.append((source.url, source.start))
            shown: list[Any] = manifest.to_json()["outputs"]
            assert [manifest.inputs[n] for n in shown[manifest.outputs.index(output)]["sources"]] == [source]
    assert len(set(ranges)) == len(ranges) > 10
    [file] = tracked_files("journal", "in/b", STORAGE)
    assert len(file.outputs) == 1


def test_records_that_went_through_an_exchange_keep_their_ranges(folder: Path) -> None:
    """They know their blocks; two files may have records of one block."""
    windows = finish(PARTITION="3")
    for manifest in windows:
        for output in manifest.outputs:
            assert manifest.provenance_of(output) == "exact"
            ranges = [(each.url, each.start, each.end) for each in manifest.sources_of(output)]
            for url, offset in origins_of(output):
                assert any(name == url and start <= offset < end for name, start, end in ranges)
            for name, start, end in ranges:
                assert any(url == name and start <= offset < end for url, offset in origins_of(output))


def test_files_of_rejects_name_where_they_were(folder: Path) -> None:
    """The blocks of the rejects, and no others."""
    Path("in/c").write_bytes(Path("in/c").read_bytes()[:100] + b"\n" + b"y" * 50 + b"\n" + b"c-99\n" * 20)
    windows = finish(FORMAT="{type: lines, max_record: 40, on_long: reject}")
    found = [(m, o) for m in windows for o in m.outputs if "/errors/" in o.url]
    [(manifest, output)] = found
    [reject] = map(json.loads, Path(output.url).read_text().splitlines())
    [source] = manifest.sources_of(output)
    assert source.url == reject["url"]
    assert source.start <= reject["offset"] < source.end
    assert source.blocks == 1


def test_of_what_an_operator_makes_anew_all_that_is_known_is_recorded(folder: Path) -> None:
    """All that the window read, and why."""
    counted = APP.replace(
        'RecordFilter, properties: {drop: {prefix: "#"}}, partition: parallel',
        "CountBy, properties: {by: record, over: window}",
    )
    manifest = finish(counted)[0]
    assert {manifest.provenance_of(output) for output in manifest.outputs} == {"window"}
    assert all(manifest.sources_of(output) == manifest.inputs for output in manifest.outputs)
