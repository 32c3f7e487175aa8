"""For authors of output formats: the laws that every format keeps, as tests to inherit."""

from __future__ import annotations

import gc
import itertools
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.context import OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.testing.operators import MemoryOutputs
from operators.sink.file_sink import FileSink
from operators.sink.formats import SINK_FORMATS
from operators.sink.formats.base import SinkFormat
from operators.sink.formats.text_format import TextFormat

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy


class SinkContract(ABC):
    """The laws of an output format, to be inherited by a class of tests.

    A subclass says which formats, what batches they are tried with, and how a file is read back.

    Guarantee: a format that passes loses no record and keeps their order, whatever the batches, windows and sizes
    of files; writes a window's bytes again, also without the windows before it; ends files near their size; and
    leaves nothing when a task fails.
    """

    formats: ClassVar[Sequence[object]]
    """Formats to try, each as YAML gives it."""

    max_bytes: ClassVar[int] = 256 << 10
    """The size that files should have in the test of sizes."""

    tolerance: ClassVar[float] = 0.15
    """How far a file's size may be from max_bytes, as a share of it."""

    @abstractmethod
    def batches(self) -> SearchStrategy[RecordBatch]:
        """Batches of any records that the format holds, all of one schema; some of them empty."""

    @abstractmethod
    def many_records(self) -> RecordBatch:
        """A batch that makes several files of max_bytes."""

    @abstractmethod
    def read_back(self, content: bytes, format: SinkFormat) -> list[Any]:
        """The records of one file, by something else than the format itself."""

    def expected(self, batch: RecordBatch, format: SinkFormat) -> list[Any]:
        """The records of a batch, as read_back gives them."""
        return batch.to_pylist()

    def other_batches(self) -> SearchStrategy[RecordBatch] | None:
        """Batches of records that may not be in one file with those of batches(), all of one other schema.

        None, the default, is right where any records may be in one file: for formats without layout_of.
        """
        return None

    def _written(
        self,
        format: SinkFormat,
        windows: Iterable[tuple[int, Sequence[RecordBatch]]],
        max_bytes: int,
        *,
        max_open: int = 1,
    ) -> dict[str, bytes]:
        """The files of some windows, given as ids and batches, by their names."""
        outputs = MemoryOutputs()
        sink = FileSink(OperatorContext(outputs=outputs), "out", max_bytes=max_bytes, max_open=max_open)
        for window_id, batches in windows:
            sink.begin_window(window_id)
            for batch in batches:
                if len(batch):
                    sink.write(batch, format)
            sink.end_window()
        return outputs.files

    def test_any_records_are_read_back_from_any_files(self) -> None:
        """All of them, in order, whatever the batches, the windows and the size of files; twice the same bytes."""
        # Optional: a dependency of tests.
        from hypothesis import given, settings
        from hypothesis import strategies as st

        windows = st.lists(st.lists(self.batches(), max_size=4), min_size=1, max_size=3)

        @settings(deadline=None)
        @given(st.sampled_from(self.formats), windows, st.integers(1, 2000))
        def check(spec: object, windows: list[list[RecordBatch]], max_bytes: int) -> None:
            format = SINK_FORMATS.make(spec)
            numbered = list(enumerate(windows, 1))
            files = self._written(format, numbered, max_bytes)
            expected = [record for batches in windows for batch in batches for record in self.expected(batch, format)]
            found = [self.read_back(files[name], format) for name in sorted(files)]
            assert list(itertools.chain.from_iterable(found)) == expected
            assert all(found), "a file without records"
            assert all(name.endswith(format.extension) for name in files)
            assert self._written(SINK_FORMATS.make(spec), numbered, max_bytes) == files, "other bytes"

        check()

    def test_each_layout_has_a_file_of_its_own(self) -> None:
        """Batches of two schemas in turn make one file each, with all records of that schema in order."""
        # Optional: a dependency of tests.
        from hypothesis import given, settings
        from hypothesis import strategies as st

        other_batches = self.other_batches()
        if other_batches is None:
            for spec in self.formats:
                assert type(SINK_FORMATS.make(spec)).layout_of is SinkFormat.layout_of, (
                    f"{spec} has a layout_of: define other_batches, so that it is tried"
                )
            return
        pairs = st.lists(st.tuples(self.batches().filter(len), other_batches.filter(len)), min_size=1, max_size=3)

        @settings(deadline=None)
        @given(st.sampled_from(self.formats), pairs)
        def check(spec: object, pairs: list[tuple[RecordBatch, RecordBatch]]) -> None:
            format = SINK_FORMATS.make(spec)
            in_turn = list(itertools.chain.from_iterable(pairs))
            files = self._written(format, [(1, in_turn)], self.max_bytes, max_open=2)
            assert [self.read_back(files[name], format) for name in sorted(files)] == [
                [record for batch in batches for record in self.expected(batch, format)]
                for batches in zip(*pairs, strict=True)
            ], f"{spec}: not one file for each schema: see layout_of"

        check()

    def test_a_heading_that_depends_on_columns_is_a_layout(self) -> None:
        """Otherwise records of other columns would be below the heading of the first."""
        for spec in self.formats:
            format = SINK_FORMATS.make(spec)
            if not isinstance(format, TextFormat):
                continue
            first, other = self._differing_columns()
            try:
                headings = format.heading(first), format.heading(other)
            except Exception:  # a heading may need columns of its own names: then a file never holds the others
                continue
            assert headings[0] == headings[1] or not format.fits(other, format.layout_of(first)), (
                f"{spec}: files of records with other columns begin with another heading, and may hold both: define "
                "layout_of, for example as the names of the columns"
            )

    def _differing_columns(self) -> tuple[RecordBatch, RecordBatch]:
        """A record of many_records, and the same one with other names of columns."""
        rows = self.many_records().to_arrow().slice(0, 1)
        return RecordBatch(rows), RecordBatch(rows.rename_columns([f"{name}_2" for name in rows.schema.names]))

    def test_columns_that_are_written_are_not_refused(self) -> None:
        """An app whose records the format holds is planned."""
        batch = self.many_records()
        arriving = StreamColumns.raw() if batch.is_raw else StreamColumns(batch.to_arrow().schema)
        for spec in self.formats:
            refused = ""
            try:
                SINK_FORMATS.make(spec).check_columns(arriving)
            except ValueError as error:
                refused = str(error)
            assert not refused, f"{spec}: check_columns refuses records that are written: {refused}"

    def test_a_window_that_runs_again_gives_the_same_bytes(self) -> None:
        """Also in another process, which has not seen the windows before it."""
        batch = RecordBatch(self.many_records().to_arrow().slice(0, 100))
        for spec in self.formats:
            both = self._written(SINK_FORMATS.make(spec), [(1, [batch]), (2, [batch])], self.max_bytes)
            for window_id in (1, 2):
                again = self._written(SINK_FORMATS.make(spec), [(window_id, [batch])], self.max_bytes)
                assert {name: both.get(name) == data for name, data in again.items()} == dict.fromkeys(again, True), (
                    f"{spec}: other bytes when a window is written again: encode must not use random numbers, the "
                    "time, or what it kept of other windows"
                )

    def test_a_file_without_records_is_a_file_of_its_format(self) -> None:
        """A file that is requested by name exists, even for a block from which a filter removed all records."""
        for spec in self.formats:
            format = SINK_FORMATS.make(spec)
            assert format.extension[:1] in ("", "."), f"{spec}: the extension {format.extension!r} has no dot"
            outputs = MemoryOutputs()
            sink = FileSink(OperatorContext(outputs=outputs), "out")
            sink.begin_window(1)
            batch = self.many_records()
            sink.write_named(RecordBatch(batch.to_arrow().slice(0, 0)), format, "empty")
            sink.end_window()
            assert {name: self.read_back(data, format) for name, data in outputs.files.items()} == {
                f"out/empty{format.for_batch(batch).extension}": []
            }

    def test_files_end_near_their_size(self) -> None:
        """On disk, compressed or not; the last file of a window is as large as what is left."""
        batch = self.many_records()
        rows = batch.to_arrow()
        for spec in self.formats:
            # A thousand records at a time, as a reader gives them.
            parts = [RecordBatch(rows.slice(start, 1000)) for start in range(0, len(batch), 1000)]
            sizes = [
                len(data)
                for _, data in sorted(self._written(SINK_FORMATS.make(spec), [(1, parts)], self.max_bytes).items())
            ]
            assert len(sizes) > 1, f"{spec}: many_records makes one file of {sizes[0]} bytes"
            assert max(sizes) <= self.max_bytes * (1 + self.tolerance), f"{spec}: {sizes}"
            assert min(sizes[:-1]) >= self.max_bytes * (1 - self.tolerance), f"{spec}: {sizes}"

    def test_a_task_that_fails_leaves_nothing(self) -> None:
        """Files that were not ended are not there, and nothing is written into them when the sink is forgotten."""
        written = [(spec, *self._forgotten(spec)) for spec in self.formats]
        gc.collect()
        for spec, outputs, before in written:
            assert (outputs.files, outputs.written_bytes) == ({}, before), f"{spec}"

    def _forgotten(self, spec: object) -> tuple[MemoryOutputs, int]:
        """The outputs of a sink that is forgotten before it ends its files, and the bytes that it has written."""
        outputs = MemoryOutputs()
        sink = FileSink(OperatorContext(outputs=outputs), "out")
        sink.begin_window(1)
        sink.write(self.many_records(), SINK_FORMATS.make(spec))
        return outputs, outputs.written_bytes
