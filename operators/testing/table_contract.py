"""For authors of formats of rows: the laws that every one of them keeps, as tests to inherit."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar

import pyarrow as pa

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, with_entry_state
from operators.testing.format_contract import URL, MemorySource, Rejects, block_of, read_apart, read_cut, read_range

Rows = Sequence[Any]
"""The rows of a file, each as values by column."""


def shown_rows(spec: object, content: bytes, block_size: int) -> tuple[str, Rejects]:
    """The rows of a file, as text, because damaged times are none of Python's; and its rejects."""
    made, source, covered = RECORD_FORMATS.make(spec), MemorySource(content), 0
    refused, parts = list[bytes](), list[pa.RecordBatch]()
    for start in range(0, len(content), block_size):
        accounting = ByteAccounting(URL, Counter(), refused.append)
        block = block_of(content, start, min(start + block_size, len(content)))
        for batch in made.read(source, with_entry_state(made, source, block), accounting):
            parts.append(accounting.parse(made, batch).batch.to_arrow())
        covered += accounting.covered
    assert covered == len(content)
    table = pa.Table.from_batches(parts) if parts else pa.table({})
    columns = (column.combine_chunks().to_string(window=len(table)) for column in table.columns)
    rejects = [(facts["offset"], facts["length"]) for facts in map(json.loads, refused)]
    return "\n".join([str(table.schema), *columns]), rejects


class TableContract(ABC):
    """The laws of a format of rows, to be inherited by a class of tests.

    A subclass says which formats, and gives files with the rows that they hold.

    Guarantee: a format that passes gives the same rows, whatever the cuts, and whatever an instance has read before.
    Of a damaged file, each row is given or refused, and that does not depend on the cuts either.
    """

    formats: ClassVar[Sequence[object]]
    """Formats to try, each as YAML gives it."""

    @abstractmethod
    def files(self) -> Sequence[tuple[bytes, Rows]]:
        """Contents of files, of several units each, and their rows."""

    def test_a_file_gives_its_rows_in_order(self) -> None:
        """Each record is a row, and its offset is the number of rows before it."""
        for spec in self.formats:
            for content, rows in self.files():
                records, rejects = read_range(RECORD_FORMATS.make(spec), content, 0, len(content))
                assert records == [*enumerate(rows)], f"{spec}"
                assert not rejects

    def test_the_blocks_of_a_file_give_its_rows(self) -> None:
        """Whatever the block size, and also where each block is read by an instance of its own, the last one first."""
        # Optional: a dependency of tests.
        from hypothesis import given, settings
        from hypothesis import strategies as st

        files = self.files()

        @settings(deadline=None)
        @given(st.sampled_from(self.formats), st.sampled_from(files), st.data())
        def check(spec: object, file: tuple[bytes, Rows], data: Any) -> None:
            content, rows = file
            block_size = data.draw(st.integers(len(content) // 40 + 1, len(content)))
            expected = [*enumerate(rows)], list[Any]()
            assert read_cut(RECORD_FORMATS.make(spec), content, block_size) == expected
            assert read_apart(lambda: RECORD_FORMATS.make(spec), content, block_size) == expected

        check()

    def test_each_cut_divides_the_rows(self) -> None:
        """A range gives the rows that its parts give, wherever it is cut."""
        for spec in self.formats:
            content, rows = self.files()[0]
            made = RECORD_FORMATS.make(spec)
            for cut in range(0, len(content) + 1, len(content) // 100 + 1):
                before, behind = read_range(made, content, 0, cut), read_range(made, content, cut, len(content))
                assert before[0] + behind[0] == [*enumerate(rows)], f"{spec} cut at {cut}"

    def test_of_a_damaged_file_no_row_is_lost(self) -> None:
        """Whatever a byte is, all bytes of the file are accounted for, and blocks give what the whole file gives."""
        # Optional: a dependency of tests.
        from hypothesis import given, settings
        from hypothesis import strategies as st

        files = self.files()

        @settings(deadline=None)
        @given(st.sampled_from(self.formats), st.sampled_from(files), st.data(), st.integers(1, 255), st.booleans())
        def check(spec: object, file: tuple[bytes, Rows], data: Any, change: int, is_cut: bool) -> None:
            place = data.draw(st.integers(1, len(file[0]) - 1))
            content = file[0][:place] + (b"" if is_cut else bytes([file[0][place] ^ change]) + file[0][place + 1 :])
            block_size = data.draw(st.integers(len(content) // 40 + 1, len(content)))
            assert shown_rows(spec, content, block_size) == shown_rows(spec, content, len(content))

        check()
