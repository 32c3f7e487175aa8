"""Many files merged into few."""

from __future__ import annotations

import base64
import itertools
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import msgspec
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.engine.run import run
from dagflow.errors import MissingError, OperatorError, StorageError
from dagflow.plan.load import load_app
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.concatenated import INDEX_SUFFIX, extract, find, list_entries
from dagflow.storage.context import StorageContext
from dagflow.testing.operators import MemoryOutputs, OperatorHarness
from operators import BlockReader, FileMerger
from operators.sink.merger import Grouping
from tests.nightly import by_day, examples
from tests.operators.reader.test_small_file_batch_reader import batch_of, written
from tests.operators.splitter.splitter_driver import write

STORAGE = StorageContext.default()

APP = """
name: merge
attributes: {{checkpoint: {root}/journal}}
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: {root}/in, {splitter}}}}}
  reader: {{class: BlockReader, properties: {{format: whole_file, max_readers: 3, on_error: skip}}}}
  merger: {{class: FileMerger, properties: {{path: {root}/out, below: {root}/in, {merger}}}, partition: parallel}}
{operators}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  files: {{from: reader.messages, to: merger.input}}
{streams}
"""
CLEANER = "  cleaner: {{class: SourceCleaner, properties: {{{}}}}}"
CLEANING = "  read: {from: reader.blocks_metadata_output, to: cleaner.input}"


def app_in(root: Path, *, splitter: str = "recursive: true", merger: str = "output: concat", cleaner: str = "") -> Any:
    """An app that merges what is below root/in into root/out."""
    operators, streams = (CLEANER.format(cleaner), CLEANING) if cleaner else ("", "")
    path = root / "merge.yaml"
    path.write_text(APP.format(root=root, splitter=splitter, merger=merger, operators=operators, streams=streams))
    return load_app(str(path))


def source_files_of(root: Path) -> dict[str, bytes]:
    """What every source file is, as the merged files below root/out give it back."""
    return {entry.path: b"".join(extract(STORAGE, entry)) for entry in list_entries(STORAGE, str(root / "out"))}


def merged(contents: Sequence[bytes], folder: Path, **properties: Any) -> dict[str, bytes]:
    """The files that one window of one partition writes, by name."""
    batch = batch_of(written(folder, contents))
    harness = OperatorHarness(FileMerger(path="/merged", below=str(folder), **properties))
    reader = BlockReader(format="whole_file")
    batches: list[Any] = []
    reader.messages.connect(batches.append)
    for _ in reader.read(batch) or ():
        pass
    for batch in batches:
        harness.window({"input": batch})
    assert isinstance(harness.outputs, MemoryOutputs)
    return {url.removeprefix("/merged/"): data for url, data in harness.outputs.files.items()}


def test_lines_end_each_file_with_a_newline(tmp_path: Path) -> None:
    """Files that have one keep it, others get one, empty ones get nothing."""
    assert list(merged([b"a", b"", b"b\n", b"c\nd"], tmp_path, output="lines").values()) == [b"a\nb\nc\nd\n"]


def test_json_lines_hold_path_and_content(tmp_path: Path) -> None:
    """Text as it is, with its quotes and accents; bytes that are no text as base64."""
    (data,) = merged(['é"\n'.encode(), b"", b"\xff"], tmp_path, output="json").values()
    assert [json.loads(line) for line in data.splitlines()] == [
        {"path": "000", "content": 'é"\n'},
        {"path": "001", "content": ""},
        {"path": "002", "content_base64": "/w=="},
    ]


def test_json_lines_are_what_any_parser_takes(tmp_path: Path) -> None:
    """A path that is no text is there twice, once exactly, and never as lone surrogates, which many parsers refuse."""
    odd = tmp_path / "in" / "é\udcff"
    odd.parent.mkdir()
    odd.write_bytes(b"odd")
    run(app_in(tmp_path, merger="output: json"), runtime=InlineRuntime)
    (path,) = (tmp_path / "out").glob("*.jsonl")
    row = {"path": "é\\xff", "path_base64": base64.b64encode(os.fsencode(odd.name)).decode(), "content": "odd"}
    assert msgspec.json.decode(path.read_bytes()) == row


def test_parquet_has_a_row_for_each_file(tmp_path: Path) -> None:
    """Content is bytes; a path that is no text is there twice, once exactly."""
    odd = tmp_path / "in" / "\udcff"
    odd.parent.mkdir()
    odd.write_bytes(b"odd")
    written(tmp_path / "in", [b"a", b""])
    run(app_in(tmp_path, merger="output: parquet"), runtime=InlineRuntime)
    rows = [row for path in (tmp_path / "out").glob("*.parquet") for row in pq.read_table(path).to_pylist()]
    assert sorted(rows, key=lambda row: row["path"]) == [
        {"path": "000", "raw_path": None, "content": b"a"},
        {"path": "001", "raw_path": None, "content": b""},
        {"path": "\\xff", "raw_path": b"\xff", "content": b"odd"},
    ]


@given(st.lists(st.integers(0, 30), max_size=25), st.integers(1, 40))
@settings(max_examples=examples(60))  # files are written, on a disk that others use
def test_no_merged_file_exceeds_its_size_and_no_source_file_is_cut(
    tmp_path_factory: pytest.TempPathFactory, sizes: list[int], max_bytes: int
) -> None:
    """Source files fill merged files in order up to max_bytes; a larger one has a merged file of its own."""
    folder = tmp_path_factory.mktemp("sizes")
    contents = [bytes([65 + number]) * size for number, size in enumerate(sizes)]
    files = merged(contents, folder, max_bytes=max_bytes) if contents else {}
    data = [content for name, content in files.items() if not name.endswith(INDEX_SUFFIX)]
    assert b"".join(data) == b"".join(contents)
    assert all(len(content) <= max_bytes or len(set(content)) == 1 for content in data)
    assert len(data) <= 2 * sum(sizes) / max_bytes + 1
    for before, after in itertools.pairwise(data):
        first = next((content for content in contents if after.startswith(content) and content), b"")
        assert len(before) + len(first) > max_bytes


def test_every_source_file_is_found_again(tmp_path: Path) -> None:
    """Any bytes, any names, empty files too; also over windows, partitions and merged files."""
    contents = {f"d{n % 3}/f{n} \udcff\n": bytes(range(256))[: n * 3 % 200] for n in range(40)}
    for name, content in contents.items():
        path = tmp_path / "in" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    run(app_in(tmp_path, splitter="blocks_threshold: 7", merger="max_bytes: 300"), runtime=InlineRuntime)
    assert source_files_of(tmp_path) == contents
    for name, content in contents.items():
        assert b"".join(extract(STORAGE, find(STORAGE, str(tmp_path / "out"), name))) == content
    with pytest.raises(MissingError, match="no index here knows missing"):
        find(STORAGE, str(tmp_path / "out"), "missing")


@pytest.mark.parametrize("listing", by_day(1, ["driver", "sharded"]))
def test_many_directories_of_one_file_and_one_directory_of_many_files(tmp_path: Path, listing: str) -> None:
    """More of either than a step of the scan holds: all are merged once, and a second run finds what is new."""
    contents = {f"many/d{n:04}/only": b"%d" % n for n in range(1200)}
    contents |= {f"one/f{n:05}": b"%d" % n for n in range(9000)}
    for name, content in contents.items():
        path = tmp_path / "in" / name
        if not name.startswith("one") or name == "one/f00000":
            path.parent.mkdir(parents=True)
        path.write_bytes(content)
    properties = f"listing: {listing}"
    summary = run(app_in(tmp_path, splitter=properties), runtime=InlineRuntime)
    assert summary.files == len(contents)
    assert source_files_of(tmp_path) == contents
    assert run(app_in(tmp_path, splitter=properties), runtime=InlineRuntime).windows == 0
    later = {"many/d0600/another": b"x", "one/f04500x": b"y", "one/f04501": b"changed"}
    for name, content in later.items():
        (tmp_path / "in" / name).write_bytes(content)
    assert run(app_in(tmp_path, splitter=properties), runtime=InlineRuntime).files == len(later)
    assert {name: b"".join(extract(STORAGE, find(STORAGE, str(tmp_path / "out"), name))) for name in later} == later


def test_a_file_that_was_cut_after_it_was_published_is_not_extracted(tmp_path: Path) -> None:
    """An index that does not fit its file is an error, not half a source file."""
    (tmp_path / "in").mkdir()
    written(tmp_path / "in", [b"abc"])
    run(app_in(tmp_path), runtime=InlineRuntime)
    entry = find(STORAGE, str(tmp_path / "out"), "000")
    Path(entry.url).write_bytes(b"ab")
    with pytest.raises(StorageError, match="the index says"):
        list(extract(STORAGE, entry))


def test_whole_batches_become_one_merged_file_each(tmp_path: Path) -> None:
    """Whatever the windows and partitions, there are no more files than bytes call for."""
    (tmp_path / "in").mkdir()
    written(tmp_path / "in", [b"x" * 10] * 100)
    splitter = "batches: whole, batch_bytes: 250, blocks_threshold: 30"
    run(app_in(tmp_path, splitter=splitter, merger="max_bytes: 250"), runtime=InlineRuntime)
    sizes = [p.stat().st_size for p in (tmp_path / "out").glob("merged-*") if not p.name.endswith(INDEX_SUFFIX)]
    assert sizes == [250] * 4


NULL = "__HIVE_DEFAULT_PARTITION__"


@pytest.mark.parametrize(
    ("pattern", "groups"),
    [
        ("", ["", ""]),
        ("directory", ["2024-01-02", "x"]),
        (r"\d{4}-\d{2}", ["2024-01", "other"]),
        (r"(?P<year>\d{4})-(?P<month>\d{2})", ["year=2024/month=01", f"year={NULL}/month={NULL}"]),
        (r"([a-z])\.txt", ["a", ".".join(["other"])]),
        (r"/(.*)\.", ["a", "%2E_%2Fb"]),
    ],
)
def test_paths_are_grouped(pattern: str, groups: list[str]) -> None:
    """A group is a directory name that every reader sees, whatever the path holds."""
    grouping = Grouping(pattern)
    assert [grouping.group_of(path) for path in ("2024-01-02/a.txt", "x/._/b.")] == (
        groups if pattern != "directory" else ["2024-01-02", "x/._"]
    )


def test_a_group_has_merged_files_of_its_own(tmp_path: Path) -> None:
    """One output a day: nothing of two days is in one file, also with fewer open files than days."""
    for number in range(30):
        path = tmp_path / "in" / f"dev{number % 7}-2024-01-{1 + number % 5:02}.txt"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(path.name.encode() + b"\n")
    merger = r"output: lines, max_open: 2, group_by: '(?P<date>\d{4}-\d+-\d+)'"
    run(app_in(tmp_path, merger=merger), runtime=InlineRuntime)
    found = {path: path.read_text().split() for path in (tmp_path / "out").rglob("merged-*")}
    assert sorted(name for names in found.values() for name in names) == sorted(
        {f"dev{number % 7}-2024-01-{1 + number % 5:02}.txt" for number in range(30)}
    )
    for path, names in found.items():
        assert {f"date={name[5:15]}" for name in names} == {path.parent.name}


def test_a_group_may_be_called_as_merged_files_are(tmp_path: Path) -> None:
    """A later run does not take it for a file that is in the way."""
    (tmp_path / "in" / "merged-00000001-00000-0000").mkdir(parents=True)
    for name in "ab":
        (tmp_path / "in" / "merged-00000001-00000-0000" / name).write_bytes(name.encode())
        run(app_in(tmp_path, merger="group_by: directory"), runtime=InlineRuntime)
    found = [path.read_bytes() for path in (tmp_path / "out" / "merged-00000001-00000-0000").glob("merged-*[0-9]")]
    assert sorted(found) == [b"a", b"b"]


@pytest.mark.parametrize("listing", ["driver", "sharded"])
@pytest.mark.parametrize("batch_bytes", [0, 1000])
@pytest.mark.parametrize("others", [0, 20])
def test_a_file_of_any_date_is_merged(tmp_path: Path, others: int, batch_bytes: int, listing: str) -> None:
    """File systems have years for which 64 bits of nanoseconds do not suffice; a second run finds nothing new."""
    (tmp_path / "in").mkdir()
    names = {f"f{number}": number for number in range(others)} | {"far": 16_725_225_600, "past": -16_725_225_600}
    for name, seconds in names.items():
        path = tmp_path / "in" / name
        path.write_bytes(name.encode())
        os.utime(path, (seconds, seconds))
    splitter = f"listing: {listing}, batch_bytes: {batch_bytes}"
    run(app_in(tmp_path, splitter=splitter), runtime=InlineRuntime)
    assert source_files_of(tmp_path) == {name: name.encode() for name in names}
    assert run(app_in(tmp_path, splitter=splitter), runtime=InlineRuntime).windows == 0


def test_records_that_are_no_whole_files_are_refused(tmp_path: Path) -> None:
    """Lines in the place of files would be merged silently."""
    (path,) = written(tmp_path, [b"a\nb\n"])
    reader = BlockReader()
    batches: list[Any] = []
    reader.messages.connect(batches.append)
    for _ in reader.read(batch_of([path])) or ():
        pass
    with pytest.raises(OperatorError, match="format: whole_file"):
        OperatorHarness(FileMerger(path="/merged")).window({"input": batches[0]})


def test_a_merger_of_lines_goes_on_with_whole_files(tmp_path: Path) -> None:
    """As its error says: what was planned is merged, each file once."""
    write(tmp_path / "in" / "a", b"1\n2\n")
    app = app_in(tmp_path)
    path = tmp_path / "merge.yaml"
    path.write_text(path.read_text().replace("format: whole_file", "format: lines"))
    with pytest.raises(OperatorError, match="say format: whole_file in the reader"):
        run(load_app(str(path)), runtime=InlineRuntime)
    for _ in range(2):
        run(app, runtime=InlineRuntime)
        assert source_files_of(tmp_path) == {"a": b"1\n2\n"}


@pytest.mark.parametrize("letter", ["я", "😀", "\x01", "\udcff", "/", "a"])
def test_a_group_has_a_name_that_a_directory_can_have(letter: str) -> None:
    """However long the text that it is made of; two texts do not share one, and what fits is not cut."""
    grouping = Grouping("(?s)(?P<value>.*)")
    found = {grouping.group_of(letter * count) for count in range(1, 300)}
    assert len(found) == 299
    assert all(len(name.encode()) <= 255 and "/" not in name for name in found)
    assert all(unquote(name).isprintable() for name in found if letter.isprintable())


def test_letters_of_any_script_stay_in_a_groups_name() -> None:
    """Spark would read their escapes as other characters, and a name has no room for three times as many bytes."""
    name = "Отчёты за первый квартал две тысячи двадцать шестого"
    assert Grouping("(?P<dir>[^/]+)/").group_of(f"{name}/f") == f"dir={name}"


def test_a_group_that_is_no_text_leaves_its_table_readable(tmp_path: Path) -> None:
    """For DuckDB and Arrow too; a directory whose name only looks like it is another group."""
    for number, name in enumerate(["\udcff", "\\xff", "plain"]):
        (tmp_path / "in" / name).mkdir(parents=True)
        (tmp_path / "in" / name / "f").write_bytes(bytes([65 + number]))
    merger = "output: parquet, group_by: '(?P<k>[^/]+)/'"
    run(app_in(tmp_path, merger=merger), runtime=InlineRuntime)
    table = ds.dataset(tmp_path / "out", format="parquet", partitioning="hive").to_table()
    expected = {b"A": "\\xff-a8100ae6aa1940d0", b"B": "\\xff", b"C": "plain"}
    assert {row["content"]: row["k"] for row in table.to_pylist()} == expected
    query = f"select content, k from read_parquet('{tmp_path}/out/**/*.parquet', hive_partitioning = true)"
    assert dict(duckdb.execute(query).fetchall()) == expected


def test_a_broken_pattern_is_refused_at_once() -> None:
    """A mistake in group_by is found before anything runs."""
    with pytest.raises(ValueError, match="not a valid RE2 expression"):
        FileMerger(path="/merged", group_by="(")
