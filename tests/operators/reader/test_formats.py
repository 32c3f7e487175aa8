"""How YAML names a format, and the errors for a wrong one."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pytest
from hypothesis import settings

import dagflow
import operators
from dagflow.api.records import RecordBatch
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, FormatTraits, Parsed, RecordFormat
from operators.reader.formats.fixed import Fixed
from operators.reader.scanning.framing import frame_one
from operators.testing import FormatContract, Records, Rejects, read_range
from tests.operators.reader.test_block_processor_accounting import published, run_app


class OneByte(RecordFormat):
    """Every byte is a record: a format of a user."""

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        buffer = bytearray(1)
        for offset in range(block.start, min(block.end, source.size_bytes)):
            source.read_into(offset, memoryview(buffer))
            yield frame_one(bytes(buffer), b"", block, offset)


class TestOneByte(FormatContract):
    """A user's format is named by its dotted path, and passes the suite that is published."""

    formats: ClassVar = [f"{OneByte.__module__}.{OneByte.__name__}"]
    pieces: ClassVar = [b"a", b"b"]
    longest = 3

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        return [(offset, content[offset : offset + 1]) for offset in range(len(content))], []


class FirstByteTwice(OneByte):
    """A format that gets it wrong: every block but the first loses its last record."""

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        yield from list(super().read(source, block, accounting))[: None if block.start == 0 else -1]


class FirstByteTwiceContract(TestOneByte):
    __test__ = False
    formats: ClassVar = [f"{FirstByteTwice.__module__}.{FirstByteTwice.__name__}"]


@pytest.fixture
def many_examples() -> Iterator[None]:
    """As many examples as a suite needs to find a mistake with certainty; by day there are few."""
    usual = settings.get_current_profile_name()
    settings.register_profile("many", parent=settings.get_profile(usual), max_examples=500)
    settings.load_profile("many")
    yield
    settings.load_profile(usual)


@pytest.mark.usefixtures("many_examples")
def test_the_suite_finds_a_format_that_is_wrong() -> None:
    """Both laws fail for a format that loses a record at a cut."""
    with pytest.raises(AssertionError):
        FirstByteTwiceContract().test_every_range_of_every_short_content_gives_what_begins_in_it()
    with pytest.raises(AssertionError):
        FirstByteTwiceContract().test_the_blocks_of_any_file_give_its_records()


class LongPiecesContract(TestOneByte):
    __test__ = False
    pieces: ClassVar = [b"a" * 40, b"b" * 40, b"c", b"d"]
    longest = 6


def test_the_suite_refuses_more_ranges_than_it_could_try() -> None:
    """It would go on for hours, without a word; the error says what to change."""
    with pytest.raises(AssertionError, match="ranges of contents take hours: lower longest, or shorten the pieces"):
        LongPiecesContract().test_every_range_of_every_short_content_gives_what_begins_in_it()


class NeedsBlockZero(OneByte):
    """A format that gets it wrong: the first byte of a file says which bytes are records, and block 0 keeps it."""

    traits = FormatTraits(adds_up=False)

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        if block.start == 0:
            head = bytearray(1)
            source.read_into(0, memoryview(head))
            self._step = step_of(head)
        step = getattr(self, "_step", 2)
        for batch in super().read(source, block, accounting):
            yield from [batch] if batch.offsets()[0] % step == 0 else []


def step_of(content: bytes | bytearray) -> int:
    """How far apart the records of a file are."""
    return 1 if content[:1] == b"a" else 2


class NeedsBlockZeroContract(TestOneByte):
    __test__ = False
    formats: ClassVar = [f"{NeedsBlockZero.__module__}.{NeedsBlockZero.__name__}"]

    def reference(self, content: bytes, format: RecordFormat) -> tuple[Records, Rejects]:
        return [(at, content[at : at + 1]) for at in range(0, len(content), step_of(content))], []


@pytest.mark.usefixtures("many_examples")
def test_the_suite_finds_a_format_that_needs_an_earlier_block() -> None:
    """Another task reads the block, whose instance has not read the first one."""
    with pytest.raises(AssertionError, match="in an instance of its own"):
        NeedsBlockZeroContract().test_every_range_of_every_short_content_gives_what_begins_in_it()
    with pytest.raises(AssertionError, match="with an instance of its own for each block"):
        NeedsBlockZeroContract().test_the_blocks_of_any_file_give_its_records()


class UndeclaredColumns(OneByte):
    """A format that gets it wrong: records have a column, and nothing says so before a run."""

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        return Parsed(batch, pa.RecordBatch.from_pydict({"first": pa.array([self._first(batch)], pa.int64())}))

    def _first(self, batch: RecordBatch) -> int:
        return 0


class FirstOfBlock(UndeclaredColumns):
    """A format that gets it wrong: the column says how far behind the beginning of its block a record is."""

    traits = FormatTraits().with_columns(pa.schema([("first", pa.int64())]))

    def _first(self, batch: RecordBatch) -> int:
        return int(batch.offsets()[0]) - int(batch.blocks[0].start)


class OtherColumns(FirstOfBlock):
    """A format that gets it wrong: the column is of another type."""

    traits = FormatTraits().with_columns(pa.schema([("first", pa.string())]))


@pytest.mark.parametrize(
    ("format", "finding"),
    [
        (UndeclaredColumns, r"set traits\.with_columns\(schema\)"),
        (OtherColumns, "other columns than traits says"),
        (FirstOfBlock, "the columns of a record depend on where the file is cut"),
    ],
)
@pytest.mark.usefixtures("many_examples")
def test_the_suite_finds_a_format_with_wrong_columns(format: type[OneByte], finding: str) -> None:
    """Columns that an app is not told of, or that depend on more than the record."""

    class WrongContract(TestOneByte):
        __test__ = False
        formats: ClassVar = [f"{__name__}.{format.__name__}"]

    with pytest.raises(AssertionError, match=finding):
        WrongContract().test_the_blocks_of_any_file_give_its_records()


def test_the_suite_says_why_records_were_refused() -> None:
    """An author who did not expect a reject sees the reason."""

    class WrongContract(TestOneByte):
        __test__ = False
        formats: ClassVar = [{"type": "json_lines"}]

    with pytest.raises(AssertionError, match=r"of the whole file it refuses: not JSON"):
        WrongContract().test_every_range_of_every_short_content_gives_what_begins_in_it()


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({}, "expected at least 1 of them"),
        ({"a": "list<int64>"}, "columns: 'a' is list<int64>, and texts hold no arrays and objects"),
        ({"a": {"type": "int64", "optional": True}}, "columns: 'a' is optional, which only columns of csv"),
    ],
)
def test_columns_that_no_text_has_are_refused(columns: object, message: str) -> None:
    """Before anything runs, for each format that makes columns of texts."""
    with pytest.raises(ValueError, match=message):
        RECORD_FORMATS.make({"type": "tests.visitors.ltsv_format.Ltsv", "columns": columns})


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("line", "there is no format 'line'; did you mean 'lines'?"),
        (7, "a format is a name, or a mapping with 'type' and options; got 7"),
        ({"length": 3}, "a mapping with 'type'"),
        ({"type": "fixed"}, "format 'fixed' needs option 'length'"),
        ({"type": "fixed", "length": 0}, "option 'length': expected at least 1; got 0"),
        ({"type": "fixed", "length": "8 lightyears"}, "option 'length': '8 lightyears' is not a size"),
        ({"type": "fixed", "lenght": 8}, "no option 'lenght'; did you mean 'length'"),
        ({"type": "fixed", "length": 8, "tail": "eat"}, "option 'tail': .*'reject', 'keep' or 'fail'; got 'eat'"),
        ({"type": "lines", "delimiter": ""}, "option 'delimiter'"),
        ("nowhere.Format", "cannot import nowhere.*; a module of your own lies in the working directory, or beside"),
        ("operators.reader.formats.fixed.Fixd", "has no 'Fixd'; did you mean 'Fixed'"),
        ("operators.BlockReader", "is not a subclass of RecordFormat"),
        ("operators.RecordFormat", "format 'operators.RecordFormat' does not define read"),
        ("operators.reader.scanning.delimited.Delimited", "does not define find"),
    ],
)
def test_mistakes_are_reported_in_the_words_of_the_app(value: object, message: str) -> None:
    """The error says what was given, and the nearest valid name."""
    with pytest.raises(ValueError, match=message):
        RECORD_FORMATS.make(value)


def test_all_mistakes_are_reported_at_once() -> None:
    """An unknown option does not hide a missing one."""
    with pytest.raises(ValueError, match=r"no option 'size'.*needs option 'length'"):
        RECORD_FORMATS.make({"type": "fixed", "size": 8})


def test_a_format_survives_pickling() -> None:
    """A format is pickled with its operator."""
    made = pickle.loads(pickle.dumps(RECORD_FORMATS.make({"type": "lines", "delimiter": "||"})))
    assert read_range(made, b"|||a||", 0, 6)[0] == [(0, b""), (2, b"|a")]


def test_a_format_that_is_made_already_stays() -> None:
    """Python code may pass a format instead of its name."""
    made = Fixed(length=3)
    assert RECORD_FORMATS.make(made) is made


def test_a_format_in_one_file_of_a_user_runs_in_an_app(tmp_path: Path) -> None:
    """An app names it by its dotted path; every byte is accounted for at any cut."""
    for block_size in (1, 3, 100):
        work = tmp_path / str(block_size)
        work.mkdir()
        summary = run_app(work, "format: tests.visitors.pairs_format.Pairs", {"x": b"abcde"}, block_size=block_size)
        assert published(work / "out") == b"abcde"
        assert (summary.records["reader.messages"], summary.bytes) == (3, 5)


def test_the_registry_is_the_only_place_that_lists_formats() -> None:
    """What editors, `dagflow operators` and error messages show of formats comes from it."""
    names = list(RECORD_FORMATS.class_paths)
    assert ", ".join(names) in RECORD_FORMATS.json_schema()["description"]
    assert [cls.name for cls in RECORD_FORMATS.classes().values()] == names
    with pytest.raises(ValueError, match=", ".join(sorted(names))):
        RECORD_FORMATS.make("unheard_of")
    packages = [Path(package.__path__[0]) for package in (dagflow, operators)]
    named = [
        path.relative_to(package).as_posix()
        for package in packages
        for path in package.rglob("*.py")
        if '"length_prefixed"' in path.read_text()
    ]
    assert sorted(named) == ["reader/formats/__init__.py", "reader/formats/length_prefixed.py"]
