"""The last record of a file, without a delimiter, is read once the file is over."""

from __future__ import annotations

import gzip
import os
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from backports import zstd

from dagflow.cli.render import waiting_lines
from dagflow.report.reading import read_checkpoint
from dagflow.storage.context import StorageContext
from operators.splitter import FileSplitterInput
from tests.operators.splitter.changes.renames.restartable_splitter import RestartableSplitter
from tests.operators.splitter.splitter_driver import SplitterDriver
from tests.properties.test_growing_files import append, read
from tests.strangers.test_rotations_and_kills import LogHistory


def gone_to(name: str, log: Path) -> Path:
    """Rename a log."""
    return log.rename(log.parent / name)


def renamed(log: Path) -> None:
    """As logrotate does."""
    gone_to("app.log.1", log)


def renamed_twice(log: Path) -> None:
    """Two rotations between two scans."""
    gone_to("app.log.2", log)
    (log.parent / "app.log.1").write_bytes(b"other\n")


def dated(log: Path) -> None:
    """With the date in the name."""
    gone_to("app-20261123.log", log)


def named_anew(log: Path) -> None:
    """Under a name that no rotation gives."""
    gone_to("kept", log)


def copied(log: Path) -> None:
    """By copytruncate."""
    (log.parent / "app.log.1").write_bytes(log.read_bytes())
    log.write_bytes(b"")


def gzipped(log: Path) -> None:
    """Compressed at once."""
    (log.parent / "app.log.1.gz").write_bytes(gzip.compress(log.read_bytes()))
    log.unlink()


def by_zstd(log: Path) -> None:
    """Compressed by another program."""
    (log.parent / "app.log.1.zst").write_bytes(zstd.compress(log.read_bytes()))
    log.unlink()


ROTATIONS = [renamed, renamed_twice, dated, named_anew, copied, gzipped, by_zstd]


CASES = [
    *((rotate, True, {"unterminated": "wait"}) for rotate in ROTATIONS),
    *((rotate, False, {}) for rotate in (renamed, gzipped)),
    *((rotate, False, {"batch_bytes": 0, "block_size": 3}) for rotate in (renamed, copied, gzipped)),
]


def follower_of(folder: Path, content: bytes, **properties: Any) -> tuple[RestartableSplitter, Path]:
    """A follower of a directory, and a log in it."""
    log = folder / "in" / "app.log"
    log.parent.mkdir()
    log.write_bytes(content)
    return RestartableSplitter(folder, **properties), log


@pytest.mark.parametrize(
    ("rotate", "restarts", "properties"), CASES, ids=lambda value: getattr(value, "__name__", str(value))
)
def test_a_rotated_log_is_read_to_its_end(
    tmp_path: Path, rotate: Callable[[Path], None], restarts: bool, properties: dict[str, Any]
) -> None:
    """A rotation that is recognised ends a log, and nothing is read twice."""
    splitter, log = follower_of(tmp_path, b"first\nlast", is_restarted=restarts, **properties)
    assert splitter.scan() == [b"first"]
    rotate(log)
    append(log, b"new\n")
    assert sorted(set(splitter.scan(3)) - {b"other"}) == [b"last", b"new"]
    assert splitter.scan(3) == []
    splitter.close()


def test_a_writer_may_end_a_record_after_the_rename(tmp_path: Path) -> None:
    """A renamed file is over when it was not written to for a second."""
    splitter, log = follower_of(tmp_path, b"first\nla")
    assert splitter.scan() == [b"first"]
    renamed(log)
    rotated = log.with_name("app.log.1")
    append(rotated, b"s")
    os.utime(rotated, (4_000_000_002, 4_000_000_002))
    assert splitter.scan() == []
    append(rotated, b"t\n")
    assert splitter.scan(3) == [b"last"]
    splitter.close()


def test_the_rest_of_a_rotated_log_waits_for_a_second_and_no_longer(tmp_path: Path) -> None:
    """Its last record is read when nothing was added to it."""
    splitter, log = follower_of(tmp_path, b"first\nla", unterminated="wait")
    assert splitter.scan() == [b"first"]
    renamed(log)
    append(log.with_name("app.log.1"), b"st")
    os.utime(log.with_name("app.log.1"), (4_000_000_002, 4_000_000_002))
    assert [splitter.scan(), splitter.scan(), splitter.scan()] == [[], [b"last"], []]
    splitter.close()


def test_a_compressed_log_is_read_to_its_end_when_it_is_complete(tmp_path: Path) -> None:
    """An incomplete one waits as before, and ends no run."""
    splitter, log = follower_of(tmp_path, b"first\nlast")
    assert splitter.scan() == [b"first"]
    content = gzip.compress(b"first\nlast\nmore")
    log.unlink()
    compressed = log.with_name("app.log.1.gz")
    compressed.write_bytes(content[:-4])
    assert splitter.scan(3) == []
    append(compressed, content[-4:])
    assert splitter.scan(3) == [b"last", b"more"]
    splitter.close()


@pytest.mark.parametrize(("properties", "scans"), [({"unterminated": {"wait_millis": 3000}}, 3), ({}, 60)], ids=str)
def test_an_unterminated_record_waits_so_long(tmp_path: Path, properties: dict[str, Any], scans: int) -> None:
    """If its end comes later all the same, it is read again, whole."""
    splitter, log = follower_of(tmp_path, b"first\nlast", **properties)
    assert splitter.scan(scans) == [b"first"]
    assert splitter.scan() == [b"last"]
    assert splitter.scan(3) == []
    append(log, b"er\n")
    assert splitter.scan() == [b"laster"]
    splitter.close()


@pytest.mark.parametrize("name", ["app.log", "app.log.1", "kept"])
def test_a_later_run_to_completion_reads_what_waits(tmp_path: Path, name: str) -> None:
    """It takes files for complete, whatever their names are by now."""
    splitter, log = follower_of(tmp_path, b"first\nlast", unterminated="wait")
    assert splitter.scan() == [b"first"]
    splitter.close()
    gone_to(name, log)
    services = replace(splitter.services, follow=False)
    driver = SplitterDriver(FileSplitterInput(files=str(log.parent)), services, splitter.state)
    assert read(driver.everything()) == [b"last"]


def test_what_waits_too_long_is_named(tmp_path: Path) -> None:
    """As long as it waits, under the name that the file had; a window that reads it ends that."""
    history = LogHistory(tmp_path, random.Random(0))
    history.use("wait")
    history.begun = {}
    log = tmp_path / "in" / "app.log"
    log.with_name("web.log").unlink()
    log.write_bytes(b"first\nlast")
    history.run_to_the_end()
    reading = read_checkpoint(str(tmp_path / "journal"), StorageContext.default())
    assert reading.snapshot is not None
    assert [(end.url, end.waiting_bytes) for end in reading.snapshot.waiting] == [(str(log), 4)]
    assert reading.waits_too_long() == ""
    late = replace(reading, now_s=reading.now_s + 4000)
    assert late.waits_too_long().startswith(f"4 bytes at the end of {log} wait for 4,00")
    assert f"    {log}: 4 bytes since " in waiting_lines(reading.snapshot)[1]
    renamed(log)
    history.run_to_the_end()
    reading = read_checkpoint(str(tmp_path / "journal"), StorageContext.default())
    assert reading.snapshot is not None
    assert reading.snapshot.waiting == ()


@pytest.mark.parametrize("content", [b"n\n", b"other bytes, and more of them\n"], ids=["truncated", "rewritten"])
def test_a_last_record_that_is_lost_is_listed_as_left_out(tmp_path: Path, content: bytes) -> None:
    """A file that was truncated or rewritten no longer has the record that waited; no byte waits then."""
    history = LogHistory(tmp_path, random.Random(0))
    history.use("wait")
    log = tmp_path / "in" / "app.log"
    log.with_name("web.log").unlink()
    log.write_bytes(b"first\nlast")
    history.run_to_the_end()
    log.write_bytes(content)
    final = history.run_to_the_end()
    assert [(lost.url, lost.lost_start, lost.lost_end) for lost in final.left_out.newest] == [(str(log), 6, 10)]
    lines = [line for path in (tmp_path / "out").iterdir() for line in path.read_bytes().splitlines()]
    assert sorted(lines) == sorted([b"first", content.strip()])
    reading = read_checkpoint(str(tmp_path / "journal"), StorageContext.default())
    assert reading.snapshot is not None
    assert (reading.snapshot.waiting_bytes, reading.snapshot.waiting) == (0, ())


def test_a_file_that_is_deleted_while_its_last_record_waits_is_listed(tmp_path: Path) -> None:
    """If the file was only moved, and is found later, its record is read after all."""
    history = LogHistory(tmp_path, random.Random(0))
    history.use("wait")
    log = tmp_path / "in" / "app.log"
    log.with_name("web.log").unlink()
    log.write_bytes(b"first\nlast")
    history.run_to_the_end()
    log.rename(tmp_path / "away")
    final = history.run_to_the_end()
    assert [(lost.url, lost.lost_start, lost.lost_end) for lost in final.left_out.newest] == [(str(log), 6, 10)]
    assert history.run_to_the_end().left_out.ranges == 1
    (tmp_path / "away").rename(log.with_name("app.log.1"))
    assert history.run_to_the_end().left_out.ranges == 0
    lines = [line for path in sorted((tmp_path / "out").iterdir()) for line in path.read_bytes().splitlines()]
    assert sorted(lines) == [b"first", b"last"]
