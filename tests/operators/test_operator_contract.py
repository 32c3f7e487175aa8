"""Every built-in operator keeps the laws of operators."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dagflow.api.operator import Operator
from dagflow.api.records import NO_DELIMITER, Origin, RecordBatch
from dagflow.spec.class_lookup import OPERATOR, built_in
from dagflow.testing.operator_contract import Inputs, OperatorContract
from operators import (
    Aggregate,
    BlockMetadata,
    BlockReader,
    Check,
    CountBy,
    Deduplicator,
    Enrich,
    FileCompletion,
    FileInfo,
    FileMerger,
    FileMetadata,
    FileSplitterBase,
    FileSplitterInput,
    FileVersion,
    KeyCounter,
    MetadataWriter,
    Parse,
    RecordFilter,
    RecordWriter,
    Select,
    SourceCleaner,
    Sql,
    TableWriter,
    TopN,
)
from tests.manual_clock import ManualClock

WORDS = [[b"a", b".b", b"a"], [b"c", b"a"], [b".d"], [b"b", b"c", b"b"]]
LINES = [b"one\ntwo\n", b"three\nfour\nfive\n", b"", b"six"]


class BuiltInContract(OperatorContract):
    """An operator of the library."""

    __test__ = False


class FileOperatorContract(BuiltInContract):
    """An operator that works on files, which lie in self.folder."""

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path: Path) -> None:
        self.folder = tmp_path
        self.write()

    def write(self) -> list[Path]:
        """Write the files anew."""
        files = [self.folder / f"{number}.txt" for number in range(len(LINES))]
        for file, content in zip(files, LINES, strict=True):
            file.write_bytes(content)
            os.utime(file, (1_700_000_000, 1_700_000_000))
        return files

    def blocks(self) -> list[BlockMetadata]:
        """Two blocks of each file."""
        found: list[BlockMetadata] = []
        for file in self.write():
            size, mtime_ns = file.stat().st_size, file.stat().st_mtime_ns
            for start, end in ((0, size // 2), (size // 2, size)):
                version = FileVersion(size, mtime_ns)
                found.append(BlockMetadata(len(found) + 1, str(file), version, start, end, end == size))
        return found


class RecordOperatorContract(BuiltInContract):
    """An operator that takes records at its port `input`."""

    def windows(self) -> Sequence[Inputs]:
        """Words."""
        return [{"input": words} for words in WORDS]


class TestBlockReader(FileOperatorContract):
    def operator(self) -> Operator:
        """An operator that reads lines."""
        return BlockReader()

    def windows(self) -> Sequence[Inputs]:
        """Blocks of several files in each window."""
        blocks = self.blocks()
        return [{"blocks_metadata_input": blocks[start : start + 3]} for start in range(0, len(blocks), 3)]


class TestFileSplitterInput(FileOperatorContract):
    def operator(self) -> Operator:
        """An operator that emits three blocks in a window."""
        splitter = FileSplitterInput(files=str(self.folder), block_size=4, blocks_threshold=3, batch_bytes=0)
        # What it emits says when files were found.
        splitter.use_clock(ManualClock(now_millis=1_800_000_000_000))
        return splitter

    def windows(self) -> Sequence[Inputs]:
        """As many windows as the operator needs."""
        return [{}] * 5


class TestFileSplitterBase(FileOperatorContract):
    def operator(self) -> Operator:
        """An operator that cuts whatever arrives."""
        return FileSplitterBase(block_size=4, blocks_threshold=3, batch_bytes=0)

    def windows(self) -> Sequence[Inputs]:
        """One file after the other, and time to cut them."""
        files = [{"input": [FileInfo(str(file), file.name)]} for file in self.write()]
        return [*files, *[{}] * 5]


class TestSourceCleaner(FileOperatorContract):
    def operator(self) -> Operator:
        """An operator that removes files."""
        return SourceCleaner(action="remove")

    def windows(self) -> Sequence[Inputs]:
        """A block of each file in the first window, the other one in the second."""
        blocks = self.blocks()
        return [{"input": blocks[0::2]}, {"input": blocks[1::2]}]


class TestFileMerger(FileOperatorContract):
    def operator(self) -> Operator:
        """An operator that concatenates files."""
        return FileMerger(path=str(self.folder / "out"), below=str(self.folder))

    def windows(self) -> Sequence[Inputs]:
        """A whole file in each window."""
        blocks = [replace(block, start=0) for block in self.blocks() if block.is_last and block.end]
        contents = [Path(block.url).read_bytes() for block in blocks]
        return [
            {"input": RecordBatch.from_records([content], NO_DELIMITER, Origin((block,)))}
            for block, content in zip(blocks, contents, strict=True)
        ]


class TestFileCompletion(FileOperatorContract):
    def operator(self) -> Operator:
        """An operator that waits for all blocks of each file."""
        return FileCompletion()

    def windows(self) -> Sequence[Inputs]:
        """The files first, and then their blocks."""
        blocks = self.blocks()
        files = [
            FileMetadata(block.url, "", block.version, 8, block.block_id, 2) for block in blocks if not block.is_last
        ]
        kept = [block for block in blocks if block.version.size_bytes]
        return [{"files_metadata_input": files}, *({"blocks_metadata_input": kept[i : i + 4]} for i in (0, 4, 8))]


class TestMetadataWriter(BuiltInContract):
    def operator(self) -> Operator:
        """An operator that writes one file for each window."""
        return MetadataWriter(path="/out")

    def windows(self) -> Sequence[Inputs]:
        """Anything."""
        return [{"input": [FileInfo("/a", "a"), FileInfo("/b", "b")]}, {"input": [FileInfo("/c", "c")]}]


class TestRecordFilter(RecordOperatorContract):
    def operator(self) -> Operator:
        """An operator that drops some records."""
        return RecordFilter(drop={"prefix": "."})


class TestRecordWriter(RecordOperatorContract):
    def operator(self) -> Operator:
        """An operator that writes part files."""
        return RecordWriter(path="/out")


class TestTableWriter(RecordOperatorContract):
    def operator(self) -> Operator:
        """An operator that writes data files for a table that is not there yet."""
        return TableWriter(table="delta:/out")


class TestCountBy(RecordOperatorContract):
    def operator(self) -> Operator:
        """An operator that counts records that are equal."""
        return CountBy(by="record")


class TestAggregate(BuiltInContract):
    def operator(self) -> Operator:
        """An operator that adds sizes up by their parity."""
        return Aggregate(by={"odd": "size % 2"}, columns={"total": "sum(size)", "part": "max(6 / (size - 4))"})

    def windows(self) -> Sequence[Inputs]:
        """Rows; some are refused."""
        return [{"input": [{"size": size} for size in sizes]} for sizes in ([3, 1, 2], [5], [4, 4, 4])]


class TestCheck(BuiltInContract):
    def operator(self) -> Operator:
        """An operator that refuses some records."""
        return Check(expect=["size < 4", "size <> 2"])

    def windows(self) -> Sequence[Inputs]:
        """Rows; some are refused."""
        return [{"input": [{"size": size} for size in sizes]} for sizes in ([3, 1, 2], [5], [4, 4, 4])]


class TestEnrich(BuiltInContract):
    @pytest.fixture(autouse=True)
    def _table(self, tmp_path: Path) -> None:
        """A table beside the test."""
        self.path = tmp_path / "names.csv"
        self.path.write_text("size,name\n1,small\n4,large\n")

    def operator(self) -> Operator:
        """An operator that finds keys of some records, and refuses the others."""
        options = {"columns": {"size": "int64"}}
        return Enrich(table=f"csv:{self.path}", on="size", csv=options, unmatched="reject")

    def windows(self) -> Sequence[Inputs]:
        """Rows; some are refused."""
        return [{"input": [{"size": size} for size in sizes]} for sizes in ([3, 1, 2], [5], [4, 4, 4])]


class TestParse(RecordOperatorContract):
    def operator(self) -> Operator:
        """An operator that parses some records, and refuses the others."""
        return Parse(regex="(?P<letter>[a-z])")


class TestSelect(BuiltInContract):
    def operator(self) -> Operator:
        """An operator that keeps some rows, computes a column, and refuses a row."""
        return Select(where="size > 1", columns={"part": "6 / (size - 4)"})

    def windows(self) -> Sequence[Inputs]:
        """Rows."""
        return [{"input": [{"size": size} for size in sizes]} for sizes in ([3, 1, 2], [5], [4, 4, 4])]


class TestSql:
    def test_its_parts_have_contract_tests(self) -> None:
        """They run in its place; those of its own are made of the others."""
        parts = Sql(query="select a, count(*) as n from input where a > 1 group by a order by n").expand().parts
        classes: list[type[Operator]] = [Select, Aggregate, TopN]
        assert [type(part) for part in parts.values()] == classes


class TestTopN(BuiltInContract):
    def operator(self) -> Operator:
        """An operator that keeps the largest two rows."""
        return TopN(by="size", n=2)

    def windows(self) -> Sequence[Inputs]:
        """Rows."""
        return [{"input": [{"size": size} for size in sizes]} for sizes in ([3, 1, 2], [5], [4, 4, 4])]


class TestDeduplicator(RecordOperatorContract):
    def operator(self) -> Operator:
        """An operator that lets each record through once."""
        return Deduplicator(key="record")


class TestKeyCounter(RecordOperatorContract):
    def operator(self) -> Operator:
        """An operator that counts records that are equal over all windows."""
        return KeyCounter(key="record")


def test_every_built_in_operator_is_tested_here() -> None:
    """A new one gets its contract test with its first land."""
    contracts: dict[str, Any] = vars(sys.modules[__name__])
    assert {f"Test{name}" for name in built_in(OPERATOR)} <= contracts.keys()
