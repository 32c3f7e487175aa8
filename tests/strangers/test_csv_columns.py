"""Columns of CSV that a file lacks, or that it has far too many of."""

from __future__ import annotations

import resource
import subprocess
import sys
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.reader.formats.csv import Csv
from operators.testing import URL, MemorySource, block_of
from tests.operators.reader.formats.test_csv import columns_of


def made_with(**options: Any) -> Csv:
    """The format with these options."""
    made = RECORD_FORMATS.make({"type": "csv", **options})
    assert isinstance(made, Csv)
    return made


def test_a_file_may_lack_an_optional_column() -> None:
    """Its values are null then, of the declared type; where the file has it, its values are read."""
    made = made_with(columns={"n": "int64", "x": {"type": "date32", "optional": True}})
    assert columns_of(made, b"n,t\n1,a\n2,b\n", 6) == [{"n": 1, "t": "a", "x": None}, {"n": 2, "t": "b", "x": None}]
    assert made.headed_columns() == pa.schema([("n", pa.int64()), ("t", pa.string()), ("x", pa.date32())])
    [row] = columns_of(made, b"x,n\n2024-05-01,1\n", 100)
    assert (str(row["x"]), row["n"]) == ("2024-05-01", 1)
    assert made.declared_columns().schema.names == ["n", "x"]


def test_the_error_of_a_file_that_lacks_a_column_says_how_to_allow_it() -> None:
    """The file stays one reject until the app says that it may."""
    refused: list[bytes] = []
    assert columns_of(made_with(columns={"x": "int64"}), b"n\n1\n", 100, refused.append) == []
    assert b"there is no column 'x'; got n; if files may lack it, add optional: true to its type" in refused[0]


@pytest.mark.parametrize(
    "options",
    [
        {"type": "csv", "header": False, "columns": {"x": {"type": "int64", "optional": True}}},
        {"type": "json_lines", "columns": {"x": {"type": "int64", "optional": True}}},
    ],
)
def test_what_no_header_names_cannot_be_optional(options: dict[str, Any]) -> None:
    """It would have no effect, in silence."""
    with pytest.raises(ValueError, match="'x' is optional"):
        RECORD_FORMATS.make(options)


def test_optional_is_true_or_false() -> None:
    """Words that mean neither are refused."""
    with pytest.raises(ValueError, match="column 'x': optional: expected true or false, got 'yes'"):
        made_with(columns={"x": {"type": "int64", "optional": "yes"}})


def test_a_header_of_too_many_columns_refuses_its_file() -> None:
    """At the limit it is read; delimiters within quotes count for nothing."""
    content = b'a,"b,c"\n1,2\n'
    assert columns_of(made_with(max_columns=2), content, 100) == [{"a": "1", "b,c": "2"}]
    refused: list[bytes] = []
    assert columns_of(made_with(max_columns=1), content, 100, refused.append) == []
    assert b"it has 2 columns, more than max_columns, 1" in refused[0]


def test_a_million_columns_are_refused_in_little_memory() -> None:
    """By default."""
    done = subprocess.run([sys.executable, "-m", __spec__.name], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "it has 1,000,000 columns, more than max_columns, 16,384\n"), (
        done.stderr
    )


if __name__ == "__main__":
    content = b",".join(b"c%d" % number for number in range(10**6)) + b"\n" + b"," * (10**6 - 1) + b"\n"
    made = made_with()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused: list[bytes] = []
    accounting = ByteAccounting(URL, Counter(), refused.append)
    assert list(made.read(MemorySource(content), block_of(content, 0, len(content)), accounting)) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200 << 10, "more than 200 MiB"
    print(refused[0].partition(b"cannot be used: ")[2].partition(b'"')[0].decode())
