"""Windows of a stream are the same after a restart, and every record is in one of them."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from dagflow.errors import JournalError, LiveRunError
from dagflow.journal.heartbeat import newest_heartbeat
from dagflow.spark.data_source import StreamReader
from dagflow.spark.source_options import SourceOptions
from dagflow.spark.spark_rows import RowShape
from dagflow.spark.stream_windows import StreamTask, StreamWindows
from dagflow.storage.context import StorageContext

SHAPE = RowShape(pa.schema([("record", pa.binary())]))


def opened(root: Path, *, is_finite: bool = False, **given: Any) -> contextlib.closing[StreamWindows]:
    """The windows of a stream over the directory `in`."""
    paths = {"path": str(root / "in"), "state": str(root / "state"), "scan_interval_millis": 0}
    options = SourceOptions.of({**paths, **given})
    return contextlib.closing(StreamWindows(options, ["record"], is_finite=is_finite, patience_s=0))


def records(tasks: Sequence[StreamTask]) -> list[bytes]:
    """The records that Spark gets from tasks."""
    return [row["record"] for task in tasks for batch in task.rows(SHAPE) for row in batch.to_pylist()]


def read_on(windows: StreamWindows, start: int, count: int) -> tuple[int, list[bytes]]:
    """Read records behind a window, and return the window that has the last: a scan may pass a file that comes late."""
    read: list[bytes] = []
    while len(read) < count:
        end = windows.latest(start, is_limited=False)
        start, read = end, [*read, *records(windows.tasks(start, end))]
    return start, read


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A directory with one file, whose last record has no end yet."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.log").write_bytes(b"1\n2\n3")
    return tmp_path


def test_a_window_is_the_same_after_a_restart_and_tails_go_on(root: Path) -> None:
    """Also where its file has grown; what was appended, recreated or renamed meanwhile is read once, behind it."""
    with opened(root) as windows:
        assert windows.latest(0, is_limited=False) == 1
        assert records(windows.tasks(0, 1)) == [b"1", b"2"]
    with (root / "in" / "a.log").open("ab") as file:
        file.write(b"33\n4\n")
    with opened(root) as windows:
        assert windows.latest(0, is_limited=False) == 1
        assert records(windows.tasks(0, 1)) == [b"1", b"2"]
        (root / "in" / "old.log").write_bytes(b"old\n")
        os.utime(root / "in" / "old.log", (1, 1))
        end, read = read_on(windows, 1, 3)
        assert sorted(read) == [b"333", b"4", b"old"]
        (root / "in" / "a.log").rename(root / "in" / "a.log.1")
        (root / "in" / "a.log").write_bytes(b"new\n")
        end, read = read_on(windows, end, 1)
        assert read == [b"new"]
        assert windows.latest(end, is_limited=False) == end


def test_a_state_is_of_one_query(root: Path) -> None:
    """A second one is refused, and so is a batch that the state does not have."""
    with opened(root) as windows, pytest.raises(LiveRunError, match="another place in the option state"):
        opened(root)
    with opened(root) as windows, pytest.raises(JournalError, match="asks for window 7, which this state does not"):
        windows.tasks(6, 7)


def test_another_state_reads_all_files_again(root: Path) -> None:
    """As it is advised where the state is another query's, or not there."""
    for state in ("state", "another"):
        with opened(root, state=str(root / state)) as windows:
            assert windows.latest(0, is_limited=False) == 1
            assert records(windows.tasks(0, 1)) == [b"1", b"2"]


@pytest.mark.parametrize(("limit", "most_bytes"), [({"maxFilesPerTrigger": 2}, 20), ({"maxBytesPerTrigger": 35}, 35)])
def test_a_batch_keeps_its_limit(tmp_path: Path, limit: dict[str, int], most_bytes: int) -> None:
    """Of files or of bytes; all batches together have every record once, and a batch of the past is let go."""
    (tmp_path / "in").mkdir()
    for number in range(7):
        (tmp_path / "in" / f"{number}.log").write_bytes(b"%09d\n" % number)
    batches: list[list[bytes]] = []
    with opened(tmp_path, is_finite=True, **limit) as windows:
        while (end := windows.latest(len(batches), is_limited=True)) > len(batches):
            batches.append(records(windows.tasks(len(batches), end)))
            if end > 1:
                with pytest.raises(JournalError, match="asks for window 1, which this state does not have"):
                    windows.tasks(0, 1)
    assert max(10 * len(batch) for batch in batches) <= most_bytes
    assert sorted(itertools.chain(*batches)) == [b"%09d" % number for number in range(7)]
    assert len(batches) < 7


def test_a_batch_that_was_not_read_to_its_end_is_committed_all_the_same(root: Path) -> None:
    """What its tasks would have found out about the files is found out then; old windows are let go."""
    with opened(root, is_finite=True, maxFilesPerTrigger=1) as windows:
        (root / "in" / "b.log").write_bytes(b"b\n")
        assert windows.latest(0, is_limited=True) == 1
        assert windows.latest(1, is_limited=True) == 2
        assert windows.last_committed == 1
        assert records(windows.tasks(1, 2)) == [b"b"]
        assert windows.latest(2, is_limited=True) == 2
    assert not list((root / "state" / "results").iterdir())
    with opened(root, is_finite=True) as windows:
        assert windows.latest(2, is_limited=False) == 2


def test_a_query_that_has_read_all_there_was_has_completed(root: Path) -> None:
    """Spark ends the process of its source without a word, and a state that is left open looks like one of a kill."""
    (root / "in" / "a.log").write_bytes(b"1\n2\n")
    given = {"path": str(root / "in"), "state": str(root / "state")}
    reader = StreamReader(given, StructType([StructField("record", BinaryType())]), is_whole=False)
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    end = reader.latestOffset(start, None)
    assert records([part.value for part in reader.partitions(start, end)]) == [b"1", b"2"]
    assert reader.latestOffset(end, None) == end
    reader.commit(end)
    _, beat = newest_heartbeat(StorageContext.default().objects(str(root / "state")))
    assert beat is not None and beat.standing() == "completed"
