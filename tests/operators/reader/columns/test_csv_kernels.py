"""Machine code reads rows of CSV as they are read without it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagflow.api.capabilities import WantedRows
from operators.reader.columns.literals import values_of
from operators.reader.columns.machine_code import MachineCode
from operators.reader.columns.types import ColumnType
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.csv import Csv
from operators.reader.scanning import quoting
from operators.reader.scanning.csv_fields import MarkedRows, split_rows
from operators.reader.scanning.quoting import Dialect, RowMarks
from operators.reader.scanning.search import hits_of
from operators.testing import columns_of
from tests.operators.reader.formats.test_csv import AT_ONCE

pytest.importorskip("numba", reason="needs numba")

from operators.reader.columns.csv_kernels import read_columns  # compiles with numba

DIALECT = Dialect(ord(","), ord('"'))
NAMES = "abc"
TEXTS = st.text(st.sampled_from('xé,;"\n\r N0'), max_size=5)

PLAIN = {
    "int8": ["0", "-128", "127", "007", "-0"],
    "uint16": ["0", "65535"],
    "int32": ["-2147483648", "2147483647"],
    "int64": [
        "-9223372036854775808",
        "12345678",
        "123456789",
        "-1234567",
        "-12345678",
        "9223372036854775807",
        "-9223372036854775807",
    ],
    "uint64": ["9223372036854775807", "1"],
    "double": ["0", "-0", "0.1", "-2.5", "123.45678", "1234567.25", "9007199254740992", "0.000000000000000001"],
    "float32": ["0.1", "16777216", "-1.3", "0.0000000007", "3"],
    "decimal(9, 2)": ["1", "-1.5", "1234567.89", "-9999999.99", "00.10"],
    "decimal(38, 0)": ["123456789012345678", "-1"],
    "decimal(20, 18)": ["0.123456789012345678", "-0.5"],
    "bool": ["true", "FALSE", "False", "tRuE", "0", "1"],
    "date": ["1970-01-01", "0001-01-01", "9999-12-31", "2000-02-29", "1900-02-28", "2024-02-29", "1969-12-31"],
    "timestamp[s]": ["2024-02-29T23:59:59", "1969-12-31 00:00:00", "2024-05-01"],
    "timestamp[us]": ["0002-01-01 00:00:00", "9998-12-31 23:59:59.999999", "2024-05-01 10:00:00.5", "1960-03-01"],
    "timestamp[ns]": ["2260-12-31 23:59:59.999999000", "1679-01-01 00:00:00.000001"],
    "timestamp[ms, Europe/Paris]": ["2024-05-01T10:00:00Z", "1900-01-01 10:00:00.125Z"],
}
ODD = [
    *("", "-0", "+1", "1e3", " 1", "1.", ".5", "-", "--1", "1-", "1.2.3", "nan", "-inf", "99999999999999999999"),
    *("128", "-129", "65536", "9223372036854775808", "18446744073709551615", "9007199254740993", "0.1000000000000005"),
    *("16777217", "0.16777217", "3.4e39", "1.005", "99999999.99", "1234567890123456789", "0.00000000000000000000001"),
    *("2024-02-30", "1900-02-29", "2023-02-29", "2024-13-01", "2024-00-01", "2024-01-00", "0000-01-01", "2024-1-1"),
    *("2024-05-01 24:00:00", "2024-05-01 10:00", "2024-05-01 10:00:60", "2024-05-01 10:00:00.12345678901"),
    *("2024-05-01 ", "2024-05-01 10:00:00.", "9999-12-31T23:59:59Z", "2024-05-01T10:00:00+02:00", "2024/05/01"),
    *("2024-05-01x10:00:00", "yes", "truely", "t", "2", "NULL", "x", "é", 'say ""x""', "a,b", "two\nlines", "a\r\nb"),
]


@given(
    st.lists(st.sampled_from(["a", ",", '"', '""', "\n", "\r\n", "\r", "x" * 60, '"x, y"']), max_size=40).map("".join),
    st.sampled_from([ord('"'), -1]),
)
def test_marks_of_rows_are_those_without_machine_code(text: str, quote: int) -> None:
    """Inside and outside of quotes, at the borders of words, with any newlines, and at the end."""
    data, dialect = np.frombuffer(text.encode(), np.uint8), Dialect(ord(","), quote)
    found = []
    for size in (1, 1 << 40):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(quoting, "MARKER", MachineCode(quoting.MARKER.path, size))
            marks = RowMarks(data, dialect)
        ends = [marks.newlines(is_at_end) for is_at_end in (True, False)]
        found.append(
            (
                [hits_of(bits, len(data)).tolist() for bits in (marks.literal, marks.delimiters)],
                [(end.starts.tolist(), end.stops.tolist(), end.codes is None or end.codes.tolist()) for end in ends],
                marks.quoting is None,
                marks.field_counts(np.unique([0, *ends[0].stops, len(data)])).tolist(),
            )
        )
    assert found[0] == found[1]


@pytest.mark.parametrize("name", PLAIN)
def test_plain_values_are_read_with_their_types(name: str) -> None:
    """Values of all types, also behind texts, in quotes and at the end of a row."""
    kind = ColumnType.of(name)
    fields = [text for value in PLAIN[name] for text in (value, f'"{value}"')]
    values = _columns("".join(f'{field},"é ""x",{field}\n' for field in fields).encode(), {"a": kind, "c": kind})
    expected = values_of(pa.array([field.strip('"') for field in fields]), kind)
    for column in (values["a"], values["c"]):
        column.validate(full=True)
        assert column.type == kind.arrow
        assert column.cast(pa.string()) == expected.cast(pa.string())


def _columns(
    data: bytes, kinds: dict[str, ColumnType], made: str = NAMES, nulls: list[str] | None = None
) -> dict[str, Any]:
    marks = RowMarks(np.frombuffer(data, np.uint8), DIALECT)
    borders = np.union1d(marks.newlines(True).stops, [0, len(data)])
    if len(borders) < 2:
        return {}
    read = read_columns(MarkedRows(borders, marks, pa.py_buffer(data)), NAMES, made, kinds, DIALECT, nulls)
    return {} if read is None else dict(zip(read.schema.names, read.columns, strict=True))


def _by_arrow(data: bytes, made: str, nulls: list[str]) -> dict[str, Any]:
    columns: dict[str, Any] = split_rows(data, [*NAMES], (",", '"', False), nulls, [*made]).to_pydict()
    return columns


def quoted(text: str, always: bool) -> str:
    """A field as writers of CSV write it."""
    return '"' + text.replace('"', '""') + '"' if always or set(text) & set(',"\r\n') else text


@given(
    rows=st.lists(st.tuples(*[st.tuples(TEXTS, st.booleans())] * 3), min_size=1, max_size=8),
    newline=st.sampled_from(["\n", "\r\n", "\r"]),
    is_ended=st.booleans(),
    made=st.sampled_from(["a", "bc", NAMES]),
    nulls=st.sampled_from([[], [""], ["N", "0"]]),
)
def test_texts_are_those_that_arrow_gives(
    rows: list[tuple[tuple[str, bool], ...]], newline: str, is_ended: bool, made: str, nulls: list[str]
) -> None:
    """Whatever the fields have, and which of them are wanted."""
    text = newline.join(",".join(quoted(*field) for field in row) for row in rows)
    columns = _columns((text + newline * is_ended).encode(), {}, made, nulls)
    # Arrow takes an empty field that nothing ends for a quoted one, behind a quoted one.
    expected = _by_arrow((text + newline).encode(), made, nulls)
    assert {name: column.to_pylist() for name, column in columns.items()} == expected


@example('a,b,c\n"d" ,e,f\n')
@example("a,b,c\nd,e\nf,g,h,i\n")
@example('a,b,"c\n')
@given(st.text(st.sampled_from('x,"\n'), max_size=24))
def test_other_text_is_read_as_arrow_does_or_left_to_it(text: str) -> None:
    """Quotes within text, quotes that are open, and rows with other numbers of fields are not read."""
    columns = _columns(text.encode(), {})
    if columns:
        expected = _by_arrow(text.encode(), NAMES, [])
        assert {name: column.to_pylist() for name, column in columns.items()} == expected


def test_a_column_with_other_values_is_given_as_text() -> None:
    """The others have their types, empty fields are null in these, and rows with other fields are not read at all."""
    kinds = dict.fromkeys("ac", ColumnType.of("int64"))
    columns = _columns(b'1,"x""y",2\n+1,,\n3,"","4"\n', kinds)
    assert {name: column.to_pylist() for name, column in columns.items()} == {
        "a": ["1", "+1", "3"],
        "b": ['x"y', "", ""],
        "c": [2, None, 4],
    }
    for text in (b"1,x,2\n1,x\n", b'1,x,2\n1,"x,2\n', b'a,b,c\n"d" ,e,f\n', b"a,b,c\nd,e\nf,g,h,i\n", b'x"y,b,c\n'):
        assert _columns(text, kinds) == {}


def marked(rows: MarkedRows, names: Sequence[str], *others: object) -> pa.RecordBatch:
    """Stands for machine code."""
    return pa.RecordBatch.from_pydict({name: ["by machine code"] * (len(rows.borders) - 1) for name in names})


def test_rows_are_read_with_machine_code_once_it_pays() -> None:
    """A process has read as many bytes then."""
    made = RECORD_FORMATS.make({"type": "csv", "header": False, "columns": ["a"]})
    assert isinstance(made, Csv)
    made.machine_code = MachineCode(f"{__name__}.marked", 4)
    read = [columns_of(made, b"1\n")[0] for _ in range(3)]
    assert read == [[{"a": "1"}], [{"a": "by machine code"}], [{"a": "by machine code"}]]


@st.composite
def typed_files(draw: st.DrawFn) -> tuple[dict[str, Any], bytes, int]:
    """Options, the bytes of a file, and the size of its blocks."""
    kinds = draw(st.lists(st.sampled_from([*PLAIN, "string", "time64[us]"]), min_size=1, max_size=4))
    odd = draw(st.sampled_from([0, 1, 8]))

    def field(kind: str) -> str:
        pool = ODD if draw(st.integers(0, 9)) < odd else PLAIN.get(kind, ODD)
        text = draw(st.sampled_from(pool))
        return f'"{text}"' if set(text) & set(',\n"') or draw(st.integers(0, 3)) == 0 else text

    rows = [[field(kind) for kind in kinds] for _ in range(draw(st.integers(1, 12)))]
    if draw(st.integers(0, 9)) == 0:
        rows.append(draw(st.sampled_from([["1"] * (len(kinds) + 1), ["", '"x"y'], ['x"y']])))
    newline = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    delimiter = draw(st.sampled_from([",", ";", ".", "-", " "]))
    options = {
        "columns": {f"c{number}": kind for number, kind in enumerate(kinds)},
        "null_values": draw(st.sampled_from([None, [], ["", "NULL"], ["NULL", "x"], ["1", "0"]])),
        "delimiter": delimiter,
        "keep_delimiter": draw(st.booleans()),
        "stray_quotes": draw(st.sampled_from(["reject", "keep"])),
    }
    content = newline.join([delimiter.join(row) for row in rows]) + draw(st.sampled_from([newline, ""]))
    return options, content.encode(), draw(st.sampled_from([1 << 20, 1 << 20, 7]))


@given(typed_files(), st.booleans())
def test_rows_are_those_that_are_read_without_machine_code(file: tuple[dict[str, Any], bytes, int], all: bool) -> None:
    """With the same rejects, whatever the values, quotes and cuts are, and which columns are wanted."""
    options, content, block_size = file
    read = []
    for code in (AT_ONCE, MachineCode("", 1 << 40)):
        made = RECORD_FORMATS.make({"type": "csv", "header": False, **options})
        assert isinstance(made, Csv)
        made.machine_code = code
        made.wanted = WantedRows() if all else WantedRows(columns=frozenset(["c0"]))
        read.append(columns_of(made, content, block_size))
    assert str(read[0]) == str(read[1])
