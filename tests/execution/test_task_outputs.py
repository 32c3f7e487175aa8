"""The files of a task; the bytes of some are still being sent when the task ends them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typing_extensions import Buffer

from dagflow.api.sources import FileSources
from dagflow.errors import StorageError
from dagflow.execution.failures import BrokenContractError
from dagflow.execution.task_outputs import ENDING_BYTES, ENDING_FILES, OutputBounds, TaskOutputs
from dagflow.storage.context import StorageContext
from dagflow.storage.pending import PendingFile, PendingWriter


class SlowWriter(PendingWriter):
    """A writer whose bytes are on their way until close() is called."""

    def __init__(self, name: str, size_bytes: int, travelling: set[str], *, is_refused: bool = False) -> None:
        self._name = name
        self._size_bytes = size_bytes
        self._travelling = travelling
        self._is_refused = is_refused

    def write(self, data: Buffer) -> None:
        """Nothing is kept."""

    def end(self) -> int:
        """Begin to travel."""
        self._travelling.add(self._name)
        return self._size_bytes

    def close(self, *, records: int) -> PendingFile:
        """Arrive."""
        if self._is_refused:
            raise StorageError("refused", url=self._name)
        self._travelling.remove(self._name)
        return PendingFile(self._name, self._name, self._size_bytes, records)

    def abandon(self) -> None:
        """Turn back."""


@pytest.mark.parametrize(("size_bytes", "most"), [(1, ENDING_FILES), (ENDING_BYTES // 4, 4), (ENDING_BYTES * 2, 0)])
def test_what_travels_behind_the_writers_is_bounded(size_bytes: int, most: int) -> None:
    """Neither many small files nor a few large ones fill a task's memory."""
    travelling: set[str] = set()
    outputs = TaskOutputs(StorageContext.default(), "tag", "process")
    at_once = []
    for number in range(100):
        outputs.end(SlowWriter(f"{number}", size_bytes, travelling), number)
        at_once.append(len(travelling))
    assert max(at_once) == most
    assert [(file.final_url, file.records) for file in outputs.take_finished()] == [(f"{n}", n) for n in range(100)]
    assert not travelling


def test_files_are_reported_in_the_order_in_which_they_were_ended(tmp_path: Path) -> None:
    """Also where one is complete at once, and the one before it is not."""
    travelling: set[str] = set()
    outputs = TaskOutputs(StorageContext.default(), "tag", "process")
    outputs.end(SlowWriter("first", 1, travelling), 1)
    file = outputs.open(str(tmp_path / "second"))
    file.write(b"x")
    file.close(records=1)
    assert travelling == {"first"}
    names = [file.final_url.rpartition("/")[2] for file in outputs.take_finished()]
    assert names == ["first", "second"]
    assert outputs.take_finished() == ()


def test_the_sources_are_those_of_the_files_that_were_taken() -> None:
    """Of files that were taken before nothing is kept, however long a driver runs."""
    outputs = TaskOutputs(StorageContext.default(), "tag", "process")
    for number in range(3):
        sources = FileSources((number, 1))
        outputs.end(SlowWriter(f"{number}", 1, set()), 1, sources)
        outputs.take_finished()
        assert outputs.sources == (sources,)


def test_a_file_that_does_not_arrive_is_reported_before_the_task_reports() -> None:
    """Nothing is reported that the store has refused."""
    outputs = TaskOutputs(StorageContext.default(), "tag", "process")
    outputs.end(SlowWriter("lost", 1, set(), is_refused=True), 1)
    with pytest.raises(StorageError, match="lost: refused"):
        outputs.take_finished()


def test_a_file_that_is_not_closed_is_reported(tmp_path: Path) -> None:
    """What was written to it would be lost silently; a task that fails abandons it."""
    outputs = TaskOutputs(StorageContext.default(), "tag", "process")
    outputs.open(str(tmp_path / "lost")).write(b"x")
    with pytest.raises(StorageError, match=r"lost: was opened and never closed.*\n *an operator closes .* end_window"):
        outputs.take_finished()
    outputs.abandon()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.mark.parametrize("place", ["elsewhere", "here/../elsewhere", "here-too"])
def test_no_file_is_begun_outside_of_where_a_run_may_publish(tmp_path: Path, place: str) -> None:
    """Neither one to publish nor one to hold; what lies inside is begun."""
    bounds = OutputBounds(str(tmp_path / "here"), "a test", hint="stay here")
    outputs = TaskOutputs(StorageContext.default(), "tag", "process", bounds)
    for begin in (outputs.open, outputs.hold):
        with pytest.raises(BrokenContractError, match=f"file .a test publishes into {tmp_path}/here alone") as caught:
            begin(str(tmp_path / place / "file"))
        assert caught.value.hint == "stay here"
    assert list(tmp_path.iterdir()) == []
    outputs.open(str(tmp_path / "here" / "file")).close(records=0)
    assert [file.final_url for file in outputs.take_finished()] == [str(tmp_path / "here" / "file")]
