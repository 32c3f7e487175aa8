"""Fingerprints of files that are taken before the files are read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.operators.splitter.changes.renames.rotations import copy_and_truncate
from tests.operators.splitter.changes.renames.test_copies import BusyServices
from tests.operators.splitter.splitter_driver import FollowingDriver, write
from tests.properties.test_growing_files import append, read


@pytest.mark.parametrize(
    ("content", "change", "records"),
    [(b"7\n8\n9\n0\n", "replaced", [b"7", b"8", b"9", b"0"]), (b"1\n2\n3\n4\n", "appended", [b"4"])],
)
def test_a_file_that_is_cut_is_recognised_before_its_reader_reports(
    tmp_path: Path, content: bytes, change: str, records: list[bytes]
) -> None:
    """Its blocks are read at different times, so that its fingerprint was taken when it was planned."""
    path = write(tmp_path / "in" / "a", b"1\n2\n3\n", mtime_s=1000)
    with FollowingDriver(files=str(tmp_path / "in"), unterminated="keep", block_size=2) as follower:
        assert read(follower.scanned()) == [b"1", b"2", b"3"]
        write(path, content, mtime_s=2000)
        assert read(follower.next_scan()) == records
        assert (follower.counters[f"files_{change}"], follower.counters["files_deferred"]) == (1, 0)


def test_a_log_that_is_truncated_while_it_is_looked_at_is_left_for_a_scan(tmp_path: Path) -> None:
    """Without its fingerprint it would not be known in a copy, after it has grown again and was read."""
    log = write(tmp_path / "in" / "app.log", b"1\n2\n3\n")
    services = BusyServices(follow=True)

    def rotate() -> None:
        copy_and_truncate(log)
        append(log, b"4\n")

    services.act = rotate
    with FollowingDriver(services, files=str(tmp_path / "in"), batch_bytes=0) as follower:
        windows = [follower.scanned(), *(follower.next_scan() for _ in range(4))]
        planned = [block for window in windows for block in window.blocks]
        assert {block.url.rpartition("/")[2]: block.end for block in planned} == {"app.log": 2, "app.log.1": 6}
        assert all(block.continuation.fingerprint for block in planned)
