"""Real files that are appended to, followed and read."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.api.context import OperatorContext
from dagflow.errors import SourceChangedError
from dagflow.journal.windows import decode_tuples, encode_tuples
from dagflow.metrics.names import RESUMED_BYTES, WAITING_BYTES
from operators.files.metadata import BlockMetadata
from operators.reader.block_reader import BlockReader
from tests.nightly import examples
from tests.operators.splitter.splitter_driver import EmittedWindow, FollowingDriver, InProcessServices, write


def read(window: EmittedWindow, counters: Counter[str] | None = None, events: list[Any] | None = None) -> list[bytes]:
    """Return the records of a window's blocks and batches, after a trip through the journal's format.

    Args:
        window: The window.
        counters: The reader's counters.
        events: Where the reader reports to the splitter.
    """
    reader = BlockReader(on_vanished="fail")
    found: list[bytes] = []
    reader.messages.connect(lambda batch: found.extend(batch.to_pylist()))
    reader.setup(OperatorContext(counters=Counter() if counters is None else counters, source_events=events))
    for item in decode_tuples(BlockMetadata, encode_tuples(BlockMetadata, window.blocks)):
        for _ in reader.read(item) or ():
            pass
    reader.teardown()
    return found


def append(path: Path, content: bytes) -> None:
    """Append to a file, or create it."""
    with path.open("ab") as file:
        file.write(content)


@settings(max_examples=examples(60))
@given(
    appends=st.lists(
        st.tuples(st.sampled_from("ab"), st.text("x\n\r", max_size=6).map(str.encode), st.booleans()), max_size=12
    ),
    block_size=st.integers(1, 8),
    batch_bytes=st.sampled_from([0, 1 << 20]),
    restarts=st.booleans(),
)
def test_appends_and_scans_in_any_order_give_each_record_once(
    appends: list[tuple[str, bytes, bool]], block_size: int, batch_bytes: int, restarts: bool
) -> None:
    """In the end all records of the files are read once, except the record in progress in each."""
    properties: dict[str, Any] = {"block_size": block_size, "batch_bytes": batch_bytes}
    counters: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as name:
        folder, found, state = Path(name), [], None
        follower = FollowingDriver(files=name, **properties)
        window = follower.scanned()
        for file, content, is_scanned in [*appends, ("a", b"", True)]:
            append(folder / file, content)
            if is_scanned:
                window = follower.next_scan()
                found += read(window, counters)
                state = window.state
                if restarts:
                    follower.following.teardown()
                    follower = FollowingDriver(state=state, files=name, **properties)
                    found += read(follower.scanned(), counters)
        follower.following.teardown()
        expected: list[bytes] = []
        in_progress = 0
        for path in sorted(folder.iterdir()):
            # A CR at the end may be half of a CR LF: its line waits.
            content = path.read_bytes()
            done = content.removesuffix(b"\r")
            complete = done[: max(done.rfind(b"\n"), done.rfind(b"\r")) + 1]
            in_progress += len(content) - len(complete)
            expected += complete.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")[:-1]
        assert Counter(found) == Counter(expected)
        assert counters[WAITING_BYTES] - counters[RESUMED_BYTES] == in_progress


@pytest.mark.parametrize("batch_bytes", [0, 1 << 20])
def test_a_half_written_line_is_read_once_and_whole(tmp_path: Path, batch_bytes: int) -> None:
    """It is neither read in two parts nor lost."""
    path = write(tmp_path / "a", b"d1\nd2-part")
    with FollowingDriver(files=str(tmp_path), batch_bytes=batch_bytes) as follower:
        assert read(follower.scanned()) == [b"d1"]
        append(path, b"-rest\nd3\n")
        assert read(follower.next_scan()) == [b"d2-part-rest", b"d3"]


@pytest.mark.parametrize(
    "properties", [{"unterminated": "keep"}, {"settle_millis": 1}, {"done_marker": "{name}.done"}], ids=str
)
def test_a_file_that_is_said_to_be_complete_is_read_to_its_end(tmp_path: Path, properties: dict[str, Any]) -> None:
    """Its last record needs no delimiter."""
    write(tmp_path / "a", b"d1\nd2", mtime_s=1000)
    write(tmp_path / "a.done", b"")
    with FollowingDriver(files=str(tmp_path), file_pattern="a", **properties) as follower:
        assert read(follower.scanned()) == [b"d1", b"d2"]


def test_a_rewrite_in_place_that_makes_a_file_longer_is_no_append(tmp_path: Path) -> None:
    """Same name, same inode, more bytes; what was there before is gone, so all of it is read."""
    path = write(tmp_path / "a", b"1\n2\n")
    with FollowingDriver(files=str(tmp_path)) as follower:
        assert read(follower.scanned()) == [b"1", b"2"]
        inode = path.stat().st_ino
        path.write_bytes(b"7\n8\n9\n")
        assert path.stat().st_ino == inode
        assert read(follower.next_scan()) == [b"7", b"8", b"9"]
        assert (follower.counters["files_replaced"], follower.counters["files_appended"]) == (1, 0)


def test_fingerprints_outlive_the_memory_of_a_window(tmp_path: Path) -> None:
    """Fingerprints are found for files whose entries have moved to the index on disk."""
    for number in range(600):
        write(tmp_path / "in" / f"{number:04d}", b"1\n")
    services = InProcessServices(state_url=str(tmp_path / "state"), follow=True)
    with FollowingDriver(services, files=str(tmp_path / "in")) as follower:
        state = follower.scanned().state
    assert state.taken.index.runs
    (tmp_path / "in" / "0300").write_bytes(b"7\n8\n")
    append(tmp_path / "in" / "0301", b"2\n")
    with FollowingDriver(services, state, files=str(tmp_path / "in")) as follower:
        assert sorted(read(follower.scanned())) == [b"2", b"7", b"8"]


@pytest.mark.parametrize("batch_bytes", [0, 1 << 20])
def test_bytes_appended_after_planning_come_with_the_next_tail(tmp_path: Path, batch_bytes: int) -> None:
    """A file may be appended to between planning and reading."""
    path = write(tmp_path / "a", b"1\n2\n")
    with FollowingDriver(files=str(tmp_path), batch_bytes=batch_bytes) as follower:
        window = follower.scanned()
        append(path, b"3\n")
        assert read(window) == [b"1", b"2"]
        window = follower.next_scan()
        append(path, b"4\n")
        assert read(window) == [b"3"]
        assert read(follower.next_scan()) == [b"4"]


@pytest.mark.parametrize("batch_bytes", [0, 1 << 20])
@pytest.mark.parametrize("content", [b"1\n8\n3\n", b"1\n", b"7\n8\n"])
def test_any_other_change_between_planning_and_reading_is_noticed(
    tmp_path: Path, batch_bytes: int, content: bytes
) -> None:
    """A rewrite to any length is refused, and not read in place of what was planned."""
    path = write(tmp_path / "a", b"1\n2\n", mtime_s=1000)
    with FollowingDriver(files=str(tmp_path), batch_bytes=batch_bytes) as follower:
        window = follower.scanned()
        path.write_bytes(content)
        with pytest.raises(SourceChangedError, match="the file changed after it was planned"):
            read(window)
