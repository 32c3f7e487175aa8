"""When the files of a writer begin and end."""

from __future__ import annotations

from typing import Any

import pytest

from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.errors import StorageError
from dagflow.testing.operators import MemoryOutputs
from operators.sink.file_sink import FileSink, numbered_names, require_own
from operators.sink.formats import SINK_FORMATS
from operators.sink.formats.base import FileEncoder, FileStream, SinkFormat
from tests.operators.sink.test_record_writer import Preparation


def test_the_file_ends_that_was_not_written_to_for_the_longest_time() -> None:
    """Directories that records keep arriving for have one file each, however many others come in between."""
    outputs = MemoryOutputs()
    sink = FileSink(OperatorContext(outputs=outputs), "out", max_open=2)
    lines = SINK_FORMATS.make("json_lines")
    sink.begin_window(1)
    for number, directory in enumerate(["often", "b", "often", "c", "often", "d", "often"]):
        sink.write(RecordBatch.from_records([{"n": number}]), lines, directory)
    sink.end_window()
    by_directory = {url.split("/")[-2]: data for url, data in outputs.files.items()}
    assert by_directory == {
        "often": b'{"n":0}\n{"n":2}\n{"n":4}\n{"n":6}\n',
        "b": b'{"n":1}\n',
        "c": b'{"n":3}\n',
        "d": b'{"n":5}\n',
    }
    assert len(outputs.files) == 4


class TakesNothing(SinkFormat):
    """A format that gets it wrong: its files are full before they hold a record."""

    begun = 0

    @property
    def extension(self) -> str:
        """None."""
        return ""

    def start(self, stream: FileStream, batch: RecordBatch, max_bytes: int | None) -> FileEncoder:
        """Begin a file, and end the test where there is no end of them."""
        self.begun += 1
        assert self.begun < 9, "files are begun one after the other"
        return _Full()


class _Full(FileEncoder):
    def write(self, rows: Any) -> int:
        """Take none."""
        return 0


def test_a_format_that_takes_no_record_ends_the_run() -> None:
    """A file would be begun for it, and another one, for ever."""
    sink = FileSink(OperatorContext(outputs=MemoryOutputs()), "out")
    sink.begin_window(1)
    with pytest.raises(ValueError, match="begins a file and takes no record"):
        sink.write(RecordBatch.from_records([b"a"]), TakesNothing())


FIRST = "part-00000001-00000-0000.json"


@pytest.mark.parametrize(
    ("published", "before"),
    [
        (["/old/out/", "/old/other/"], "/old/out"),
        (["/old/out/day=1/"], ""),
        (["/new/other/"], ""),
        (["/old/out/", "/new/out/day=1/"], ""),
        ([], ""),
    ],
    ids=["moved", "in another directory", "of another writer", "has files here", "has published nothing"],
)
def test_a_file_is_named_as_a_moved_one_only_where_all_was_moved(published: list[str], before: str) -> None:
    """The files of all writers have the same names: one of another writer's is none that was moved here."""
    run = Preparation(f"{directory}{FIRST}" for directory in published)
    with pytest.raises(StorageError, match="did not publish and whose names it may need") as caught:
        require_own(run, "/new/out", [f"/new/out/{FIRST}"], numbered_names("part"))
    message = f"such as {FIRST}; its own {FIRST} is in {before}" if before else f"such as {FIRST}"
    assert caught.value.message.endswith(message)
    assert ("put it back" in caught.value.hint) == bool(before)
