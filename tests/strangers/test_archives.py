"""A directory that is sent as an archive gives the same records as before it was packed."""

from __future__ import annotations

import gzip
import hashlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from dagflow.errors import DagflowError
from dagflow.storage.context import StorageContext
from dagflow.testing.app_cases import failures_of, read_cases
from dagflow.testing.apps import run_app
from operators.reader.block_reader import BlockReader
from operators.splitter import FileSplitterInput
from tests.operators.splitter.splitter_driver import FollowingDriver, SplitterDriver, write
from tests.storage.test_archives import LONG, tarred, zipped

APP = """
name: packed
steps:
  - files: inbox
    file_pattern: '.*\\.log(\\.gz)?'
    block_size: 256KiB
    batch_bytes: 64KiB
    blocks_threshold: 3%s
  - read: lines%s
  - write: out
"""

MEMBERS = {"a/long.log": LONG, "b.log": b"1\n2\n", "a/empty.log": b"", "c.txt": b"3\n", "z.log": b"4\nlast"}


def records(tmp_path: Path, files: dict[str, bytes], splitter: str = "", reader: str = "") -> list[bytes]:
    """The records of an app over some files, in any order."""
    path = tmp_path / "app.yaml"
    path.write_text(APP % (splitter, reader))
    return sorted(run_app(path, {f"inbox/{name}": data for name, data in files.items()}).lines("out"))


@pytest.mark.parametrize("name", ["a.zip", "a.tar", "a.tar.gz"])
def test_an_archive_has_the_records_of_the_directory_that_was_packed(name: str, tmp_path: Path) -> None:
    """In windows of a few blocks: short members are read in batches, long ones in blocks, or as compressed files."""
    packed = zipped(MEMBERS) if name == "a.zip" else tarred(MEMBERS, "w:gz" if name.endswith("gz") else "w")
    beside = {"plain.log": b"5\n"}
    assert records(tmp_path, {f"sub/{name}": packed, **beside}) == records(tmp_path, {**MEMBERS, **beside})


@pytest.mark.parametrize("name", ["a.zip", "a.tgz", "a.parquet"])
def test_rows_of_a_compressed_file_of_several_blocks_are_read(name: str, tmp_path: Path) -> None:
    """Its first block has all of them, whatever the format; the name does not say that it is compressed."""
    out = pa.BufferOutputStream()
    count = 30_000
    digests = [hashlib.sha256(b"%d" % row).hexdigest() for row in range(count)]
    pq.write_table(pa.table({"id": range(count), "digest": digests}), out, row_group_size=8000)
    data = out.getvalue().to_pybytes()
    member = {"a.parquet": data}
    content = {"a.zip": zipped(member), "a.tgz": tarred(member, "w:gz"), "a.parquet": gzip.compress(data)}[name]
    app = tmp_path / "app.yaml"
    app.write_text(
        "name: p\nsteps:\n  - files: in\n    block_size: 64KiB\n  - read: parquet\n  - write: out\n    format: csv"
    )
    outputs = run_app(app, {f"in/{name}": content})
    assert (outputs.records["read.messages"], len(outputs.rows("out"))) == (count, count)


def test_a_damaged_archive_ends_the_run_or_is_left_out(tmp_path: Path) -> None:
    """As any other file that cannot be read; the message names the archive, and its advice works."""
    files = {"a.zip": zipped(MEMBERS)[:-30], "plain.log": b"5\n"}
    with pytest.raises(DagflowError, match=r"a\.zip: it is no zip archive, or damaged(.|\n)*on_error: skip"):
        records(tmp_path, files)
    assert records(tmp_path, files, reader="\n    on_error: skip") == [b"5"]
    # As files, archives have other names than those that are selected.
    assert records(tmp_path, files, splitter="\n    archives: whole") == [b"5"]


def test_members_are_taken_once_while_archives_come_and_change(tmp_path: Path) -> None:
    """One that was written anew is a change of all of its members, and has its members of then and no others."""
    write(tmp_path / "a.zip", zipped({"1.log": b"1\n", "2.log": b"2\n"}), mtime_s=1)
    with FollowingDriver(files=[str(tmp_path)], on_change={"replaced": "reread"}, batch_bytes=0) as run:
        first = run.scanned()
        assert (first.paths, first.ranges) == (["a.zip!1.log", "a.zip!2.log"], [(0, 2), (0, 2)])
        write(tmp_path / "b.tgz", tarred({"3.log": b"3\n"}, "w:gz"))
        assert run.next_scan().paths == ["b.tgz!3.log"]
        write(tmp_path / "a.zip", zipped({"2.log": b"2\n", "4.log": b"4\n"}), mtime_s=2)
        assert run.next_scan().paths == ["a.zip!2.log", "a.zip!4.log"]
        assert run.next_scan().paths == []


def test_the_marker_of_an_archive_makes_its_members_complete(tmp_path: Path) -> None:
    """Before it is there an archive may be half written: neither a member nor the archive is taken."""
    write(tmp_path / "a.zip", zipped({"d/1.log": b"1\n"})[:20])
    with FollowingDriver(files=[str(tmp_path / "a.zip")], done_marker="{name}.done") as run:
        assert run.scanned().paths == []
        write(tmp_path / "a.zip", zipped({"d/1.log": b"1\n"}))
        assert run.next_scan().paths == []
        write(tmp_path / "a.zip.done")
        assert run.next_scan().paths == ["a.zip!d/1.log"]


CASE = """
name: cut-and-killed
steps:
  - files: in
  - read: csv
  - write: out
    format: csv
tests:
  packed:
    files: {in/a.zip: {from: a.zip}, in/b.tgz: {from: b.tgz}, in/c.csv: "id,name\\n5,e\\n"}
    rows:
      out: [{id: "1", name: a}, {id: "2", name: "b\\nb"}, {id: "3", name: c}, {id: "4", name: d}, {id: "5", name: e}]
    cut: every
    kill: every
"""


@pytest.mark.nightly
def test_archives_are_read_exactly_at_any_cut_and_crash(tmp_path: Path) -> None:
    """A run that dies before any change of the disk, and another one, publish each row of each member once."""
    (tmp_path / "a.zip").write_bytes(zipped({"x/1.csv": b'id,name\n1,a\n2,"b\nb"\n', "y/2.csv": b"id,name\n3,c\n"}))
    (tmp_path / "b.tgz").write_bytes(tarred({"x/1.csv": b"id,name\n4,d\n"}, "w:gz"))
    (tmp_path / "app.yaml").write_text(CASE)
    (case,) = read_cases(str(tmp_path / "app.yaml"))
    assert list(map(str, failures_of(case))) == []


@pytest.mark.nightly
def test_archives_are_read_in_an_object_store(s3_root: str) -> None:
    """By ranges of the archive, whose etag is the version of its members."""
    storage = StorageContext.default()
    for name, data in {"a.zip": zipped(MEMBERS), "b.tar.gz": tarred(MEMBERS, "w:gz")}.items():
        pending = storage.open_pending(f"{s3_root}/in/{name}", tag="test-00000001")
        pending.write(data)
        storage.backend(s3_root).pending.publish(pending.close(records=0))
    run = SplitterDriver(FileSplitterInput(files=[f"{s3_root}/in"], block_size=256 << 10, batch_bytes=0))
    blocks = run.everything().blocks
    assert {block.version.etag for block in blocks} == {
        storage.stat(f"{s3_root}/in/{name}").etag for name in ("a.zip", "b.tar.gz")
    }
    reader, lines = BlockReader(), list[bytes]()
    reader.messages.connect(lambda batch: lines.extend(batch.to_pylist()))
    for block in blocks:
        for _ in reader.read(block):
            pass
    assert sorted(lines) == sorted(2 * [line for data in MEMBERS.values() for line in data.splitlines()])
