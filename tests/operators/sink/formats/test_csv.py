"""CSV as output."""

from __future__ import annotations

import csv
import io
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from dagflow.api.records import RecordBatch
from operators.reader.formats import RECORD_FORMATS
from operators.sink.formats import SINK_FORMATS
from operators.sink.formats.base import SinkFormat
from operators.sink.formats.csv import CsvSink
from operators.testing import SinkContract
from tests.operators.reader.formats.test_csv import columns_of
from tests.operators.sink.formats.sink_records import TEXT, batches_of, decompressed, many_rows, written

TYPES = [pa.int64(), pa.string(), pa.float64(), pa.bool_(), pa.decimal128(38, 9), pa.date32(), pa.time64("us")]
TYPES += [pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.binary(), pa.uint8()]
SCHEMA = pa.schema([(str(kind), kind) for kind in TYPES])


class TestCsv(SinkContract):
    """pyarrow reads every value back, and distinguishes a missing one from an empty text."""

    formats: ClassVar = [
        "csv",
        {"type": "csv", "compression": "gzip"},
        {"type": "csv", "compression": "zstd", "line_ending": "crlf"},
        {"type": "csv", "delimiter": ";", "null_value": "NULL"},
        {"type": "csv", "delimiter": "-"},
    ]

    def batches(self) -> SearchStrategy[RecordBatch]:
        return batches_of(SCHEMA)

    def other_batches(self) -> SearchStrategy[RecordBatch]:
        return batches_of(pa.schema([SCHEMA.field(1), SCHEMA.field(0)]))

    def many_records(self) -> RecordBatch:
        return many_rows(SCHEMA, 30_000)

    def read_back(self, content: bytes, format: SinkFormat) -> list[Any]:
        assert isinstance(format, CsvSink)
        table = arrow_csv.read_csv(
            io.BytesIO(decompressed(content, format)),
            parse_options=arrow_csv.ParseOptions(delimiter=format.delimiter, newlines_in_values=True),
            convert_options=arrow_csv.ConvertOptions(
                column_types=SCHEMA,
                null_values=[format.null_value],
                strings_can_be_null=True,
                quoted_strings_can_be_null=False,
                check_utf8=False,
            ),
        )
        return list(table.to_pylist())


def rows_of(batch: RecordBatch, **options: Any) -> str:
    """The only file of a batch."""
    (content,) = written(batch, type="csv", **options)
    return content.decode()


def batch_of(**columns: Any) -> RecordBatch:
    """A batch with these columns."""
    return RecordBatch(pa.record_batch(columns))


TEXTS = st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=5)


@given(TEXTS, st.sampled_from(["lf", "crlf"]))
def test_python_reads_every_text_back(rows: list[tuple[str, str]], line_ending: str) -> None:
    """Quotes, newlines and delimiters included."""
    text = rows_of(batch_of(a=[a for a, _ in rows], b=[b for _, b in rows]), line_ending=line_ending)
    assert [tuple(row) for row in csv.reader(io.StringIO(text, newline=""))] == [("a", "b"), *rows]


@given(TEXTS, st.integers(1, 40))
def test_the_reader_reads_every_text_back(rows: list[tuple[str, str]], block_size: int) -> None:
    """The record format gives the same columns from blocks of any size."""
    text = rows_of(batch_of(a=[a for a, _ in rows], b=[b for _, b in rows])).encode()
    found = columns_of(RECORD_FORMATS.make("csv"), text, block_size)
    assert [(row["a"], row["b"]) for row in found] == rows


def test_fields_are_quoted_only_where_they_must_be() -> None:
    """RFC 4180: delimiters, quotes and newlines; quotes are doubled. Empty texts differ from missing ones."""
    batch = batch_of(t=["plain", "a,b", 'say "x"', "two\nlines", "", None], n=[1, 2, 3, 4, 5, None])
    assert rows_of(batch) == 't,n\nplain,1\n"a,b",2\n"say ""x""",3\n"two\nlines",4\n"",5\n,\n'


def test_every_type_has_its_text() -> None:
    """Numbers exact, times in ISO 8601, those with a zone in UTC, nested values as JSON."""
    moment = pa.array([1_234_567_891], pa.timestamp("ns"))
    batch = batch_of(
        f=[0.1],
        i=[float("inf")],
        b=[True],
        d=pa.array([1], pa.date32()),
        t=moment,
        z=moment.cast(pa.timestamp("ns", "UTC")).cast(pa.timestamp("ns", "Europe/Berlin")),
        u=pa.array([1], pa.duration("s")),
        l=[[1, None]],
        s=[{"x": "y"}],
        k=pa.array(["a"]).dictionary_encode(),
    )
    assert rows_of(batch, header=False) == (
        "0.1,inf,true,1970-01-02,1970-01-01T00:00:01.234567891,1970-01-01T00:00:01.234567891Z,PT1S,"
        '"[1,null]","{""x"":""y""}",a\n'
    )


def test_null_value_stands_for_what_is_missing() -> None:
    """A text that is the same stands in quotes, and an empty text needs none."""
    assert rows_of(batch_of(t=[None, "NA", ""], n=[None, 1, 2]), null_value="NA") == 't,n\nNA,NA\n"NA",1\n,2\n'


def test_a_file_of_one_column_has_no_empty_lines() -> None:
    """Readers pass over them, so a missing value is written as an empty text."""
    assert rows_of(batch_of(t=["a", None])) == 't\na\n""\n'


def test_a_file_of_one_column_has_no_empty_lines_beside_a_null_value() -> None:
    """An empty text is in quotes there, and so is an empty name in the header."""
    assert rows_of(batch_of(t=["a", "", None]), null_value="NULL") == 't\na\n""\nNULL\n'
    assert rows_of(batch_of(**{"": ["a", None]}), null_value="NULL") == '""\na\nNULL\n'


NULLABLE = st.integers(1, 3).flatmap(
    lambda width: st.lists(st.lists(st.none() | TEXT, min_size=width, max_size=width), min_size=1, max_size=4)
)


@given(NULLABLE, st.lists(TEXT, min_size=3, max_size=3, unique=True), st.sampled_from(["", "NULL", "-"]), st.booleans())
def test_no_row_of_texts_and_nulls_is_lost(
    rows: list[list[str | None]], names: list[str], null_value: str, header: bool
) -> None:
    """For any number of columns of any names, Python's reader and the record format have all rows, and the header."""
    batch = RecordBatch(pa.record_batch(list(map(pa.array, zip(*rows, strict=True))), names[: len(rows[0])]))
    text = rows_of(batch, null_value=null_value, header=header)
    expected = [[null_value if value is None else value for value in row] for row in rows]
    head = [names[: len(rows[0])]] if header else []
    assert list(csv.reader(io.StringIO(text, newline=""))) == head + expected
    made = RECORD_FORMATS.make({"type": "csv", "header": False, "columns": list("abc"[: len(rows[0])])})
    found = columns_of(made, text.encode(), 1 << 20)
    assert [[value or "" for value in row.values()] for row in found] == head + expected


def test_other_columns_go_to_files_of_their_own() -> None:
    """A file has one header, and rows that it fits; two files are open at the same time."""
    files = written(batch_of(a=[1]), batch_of(b=[2]), batch_of(a=["x"]), type="csv")
    assert files == [b"a\n1\nx\n", b"b\n2\n"]


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"delimiter": '"'}, "is a quote, a newline, a letter or a digit"),
        ({"delimiter": "x"}, "is a quote, a newline, a letter or a digit"),
        ({"delimiter": r"\t"}, "is not one character of ASCII; a tab is"),
        ({"null_value": "a,b"}, "holds the delimiter"),
        ({"null_value": '"'}, "holds the delimiter, a quote or a newline"),
        ({"delimeter": ";"}, "did you mean 'delimiter'"),
    ],
)
def test_options_that_make_no_csv_are_refused(options: dict[str, str], problem: str) -> None:
    """Before anything runs, by the name of the option."""
    with pytest.raises(ValueError, match=problem):
        SINK_FORMATS.make({"type": "csv", **options})
