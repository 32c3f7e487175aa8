"""Which text is a value of which type: the same in CSV and in JSON, whatever stands beside it."""

from __future__ import annotations

import csv
import io
import json
import re
from collections import Counter
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from operators.reader.columns.types import ColumnType
from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting
from operators.testing import URL, MemorySource, block_of, read_cut

REFUSED = object()
NO_INTEGERS = ["0x10", " 1", "1 ", "1.0", "1e3", "1_000", "1,000", "--1", "-", "+", "१", "NULL", "nan", "true"]
NO_NUMBERS = ["0x10", " 1", "1 ", ".", "-", "1e", "e5", "1_0", "1,5", "1.2.3", "--1", "१", "NULL", "n/a", "nan(1)"]
NO_DAYS = ["2024-02-30", "2023-02-29", "2024-13-01", "2024-00-01", "2024-1-1", "24-01-01", "20240101", "2024/01/01"]
NO_CLOCKS = ["24:00", "10:60", "10:00:60", "1:00", "10", "100000", "10:00:00.", "10:00:00,5", "10:00Z", "noon"]
TABLE: list[tuple[Any, dict[str, Any], list[str]]] = [
    ("int64", {"0": 0, "-0": 0, "007": 7, "+1": 1, "-12": -12, str(2**63 - 1): 2**63 - 1}, [*NO_INTEGERS, str(2**63)]),
    ("int8", {"127": 127, "-128": -128}, ["128", "-129", *NO_INTEGERS]),
    ("uint8", {"255": 255, "0": 0, "+7": 7}, ["256", "-1", "-0", *NO_INTEGERS]),
    ("uint64", {str(2**64 - 1): 2**64 - 1}, [str(2**64), "-1", *NO_INTEGERS]),
    (
        "double",
        {"1": 1.0, "-1.5": -1.5, "+1": 1.0, ".5": 0.5, "5.": 5.0, "1e3": 1000.0, "1E-3": 0.001, "1e-999": 0.0}
        | {"9007199254740993": 9007199254740992.0, "inf": float("inf"), "-Infinity": float("-inf")},
        ["1e999", "-1e999", "-nan", "infinit", *NO_NUMBERS],
    ),
    ("float32", {"0.5": 0.5, "16777217": 16777216.0}, ["1e39", "-1e39", *NO_NUMBERS]),
    (
        "decimal(9, 2)",
        {"1.5": Decimal("1.50"), "-0.01": Decimal("-0.01"), "1234567.89": Decimal("1234567.89")}
        | {"1.230": Decimal("1.23"), "1e2": Decimal(100), "+1": Decimal(1), ".5": Decimal("0.5"), "5.": Decimal(5)},
        ["1.234", "12345678", "1e-3", "1e30", "1e1000000000", "inf", "nan", *NO_NUMBERS],
    ),
    ("decimal(38, 0)", {"9" * 38: Decimal("9" * 38), "0e40": Decimal(0)}, ["1" + "0" * 38, "0.1", "1" * 70, "2e38"]),
    (
        "decimal(38, 30)",
        {"12345678.5": Decimal("12345678.5"), "0e400": Decimal(0), "0e-400": Decimal(0), "1e7": Decimal(10_000_000)},
        ["1400000000000000000000", "14e20", "1e40", "1e56", "1e80", "12e-39", "1e-400", "0." + "0" * 70 + "1"],
    ),
    ("decimal(18, 0)", {"12": Decimal(12)}, ["1e-39", "12e-39", "0." + "0" * 40 + "1"]),
    ("date32", {"2024-02-29": date(2024, 2, 29), "0001-01-01": date.min, "9999-12-31": date.max}, NO_DAYS),
    ("date32", {}, ["0000-01-01", "10000-01-01", "2024-01-01T00:00", "2024-01-01Z", "2024-01-01 ", "today"]),
    ({"type": "date32", "format": "%d.%m.%Y"}, {"1.2.2024": date(2024, 2, 1)}, ["31.02.2024", "2024-02-01", "1.2.24"]),
    ({"type": "date32", "format": "%b %d, %y"}, {"Dec 24, 68": date(2068, 12, 24)}, ["Foo 24, 68", "Dec 24 68"]),
    ("time32[s]", {"10:00": time(10), "23:59:59": time(23, 59, 59), "10:00:00.000": time(10)}, ["10:00:00.5"]),
    ("time64[us]", {"10:00:00.5": time(10, 0, 0, 500_000), "10:00:00.1234560": time(10, 0, 0, 123_456)}, NO_CLOCKS),
    ("time64[us]", {}, ["10:00:00.1234567"]),
    (
        {"type": "time32[s]", "format": "%I:%M %p"},
        {"12:05 am": time(0, 5), "1:00 PM": time(13)},
        ["13:00 PM", "0:00 am"],
    ),
    (
        {"type": "time32[s]", "format": "%I:%M:%S%p"},
        {"7:05:3PM": time(19, 5, 3), "07:05:03am": time(7, 5, 3)},
        ["7:05:003PM"],
    ),
    ({"type": "date32", "format": "%d%b%Y"}, {"1Feb2024": date(2024, 2, 1), "01feb2024": date(2024, 2, 1)}, ["1Feb24"]),
    ({"type": "date32", "format": "%Y%m%d"}, {"20240201": date(2024, 2, 1)}, ["202421", "2024021"]),
    (
        {"type": "timestamp[s, UTC]", "format": "%Y-%m-%d %H:%M%z"},
        {"2024-02-01 7:5Z": datetime(2024, 2, 1, 7, 5, tzinfo=UTC)}
        | {"2024-02-01 7:05+0100": datetime(2024, 2, 1, 6, 5, tzinfo=UTC)},
        ["2024-02-01 7:05"],
    ),
    (
        "timestamp[us]",
        {"2024-01-01T10:00:00": datetime(2024, 1, 1, 10), "2024-01-01 10:00": datetime(2024, 1, 1, 10)}
        | {"2024-01-01": datetime(2024, 1, 1), "2024-01-01T10:00:00.1234560": datetime(2024, 1, 1, 10, 0, 0, 123_456)},
        [
            *("2024-01-01T10:00:00Z", "2024-01-01T10:00:00+02:00", "2024-01-01T10", "2024-01-01t10:00"),
            *(f"2024-01-01T{clock}" for clock in NO_CLOCKS),
            *(f"{day} 10:00" for day in [*NO_DAYS, "0000-01-01"]),
        ],
    ),
    ("timestamp[s]", {"2024-01-01T10:00:00.0": datetime(2024, 1, 1, 10)}, ["2024-01-01T10:00:00.5"]),
    (
        "timestamp[ns]",
        {"2024-01-01T10:00:00": datetime(2024, 1, 1, 10)},
        ["2300-01-01T00:00:00", "1677-01-01T00:00:00"],
    ),
    (
        "timestamp[us, UTC]",
        {text: datetime(2024, 1, 1, 8, tzinfo=UTC) for text in ("2024-01-01T10:00:00+02:00", "2024-01-01 08:00Z")}
        | {text: datetime(2024, 1, 1, 8, tzinfo=UTC) for text in ("2024-01-01T10:00+0200", "2024-01-01T10:00:00.0+02")},
        [
            "2024-01-01T10:00:00",
            "2024-01-01",
            "2024-01-01Z",
            "2024-01-01T10:00:00-25:00",
            "2024-01-01T10:00:00 +01:00",
            "2024-01-01T10:00:00z",
            "2024-01-01T10:00:00 UTC",
            "0000-01-01T10:00:00Z",
            "2024-02-30T10:00:00Z",
        ],
    ),
    (
        "timestamp[us, UTC]",
        {"9999-12-31T23:59:59.999999Z": datetime.max.replace(tzinfo=UTC)}
        | {"0001-01-01T02:00:00+02:00": datetime.min.replace(tzinfo=UTC)},
        ["9999-12-31T23:59:59-05:00", "0001-01-01T00:00:00+00:01"],
    ),
    (
        "timestamp[ms, Europe/Paris]",
        {"9999-12-31T22:59:59.999Z": datetime(9999, 12, 31, 22, 59, 59, 999_000, UTC)}
        | {"0001-01-01T00:00:00Z": datetime.min.replace(tzinfo=UTC)},
        ["9999-12-31T23:00:00Z", "9999-12-31T23:59:59Z", "0000-12-31T23:59:00Z", "0001-01-01T00:00:00+01:00"],
    ),
    (
        "timestamp[s, America/New_York]",
        {"0001-01-01T04:56:02Z": datetime(1, 1, 1, 4, 56, 2, tzinfo=UTC)}
        | {"9999-12-31T23:59:59Z": datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC)},
        ["0001-01-01T00:00:00Z", "0001-01-01T04:56:01Z", "9999-12-31T23:59:59-05:00"],
    ),
    (
        {"type": "timestamp[us, +14:00]", "format": "%d.%m.%Y %H:%M %z"},
        {"31.12.9999 09:59 Z": datetime(9999, 12, 31, 9, 59, tzinfo=UTC)},
        ["31.12.9999 10:00 Z", "31.12.9999 23:59 -14:00"],
    ),
    (
        {"type": "timestamp[ms, UTC]", "format": "%d/%b/%Y:%T %z"},
        {"10/Oct/2000:13:55:36 -0700": datetime(2000, 10, 10, 20, 55, 36, tzinfo=UTC)},
        ["10/Oct/2000:13:55:36", "10/Oct/2000:25:55:36 -0700"],
    ),
]
BOOLS = {"true": True, "TRUE": True, "False": False, "1": True, "0": False}
JSON_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")


def read(made: Any, content: bytes) -> tuple[list[Any], list[str]]:
    """The values of column v, and the reasons of rejects."""
    refused: list[bytes] = []
    accounting = ByteAccounting(URL, Counter(), refused.append)
    values: list[Any] = []
    for batch in made.read(MemorySource(content), block_of(content, 0, len(content)), accounting):
        parsed = accounting.parse(made, batch)
        values += parsed.columns.column("v").to_pylist() if len(parsed.raw) else []
    return values, [json.loads(each)["reason"] for each in refused]


def from_csv(kind: Any, texts: list[str]) -> tuple[list[Any], list[str]]:
    """What a CSV file makes of texts as fields, all in one batch."""
    content = io.StringIO()
    csv.writer(content, lineterminator="\n").writerows([["v", "x"], *([text, ""] for text in texts)])
    return read(RECORD_FORMATS.make({"type": "csv", "columns": {"v": kind}}), content.getvalue().encode())


def from_json(kind: Any, values: list[str]) -> tuple[list[Any], list[str]]:
    """What a file of JSON makes of values as they are written, all in one batch."""
    content = "".join(f'{{"v": {value}}}\n' for value in values).encode()
    return read(RECORD_FORMATS.make({"type": "json_lines", "columns": {"v": kind}}), content)


def is_number(kind: Any) -> bool:
    """Whether JSON writes values of the type as numbers."""
    return ColumnType.of(kind).name.startswith(("int", "uint", "float", "double", "decimal"))


def test_the_table_is_long() -> None:
    """It has so many pairs of a type and a text."""
    assert sum(len(taken) + len(refused) for _, taken, refused in TABLE) > 200


@pytest.mark.parametrize(("kind", "taken", "refused"), TABLE, ids=[str(kind) for kind, _, _ in TABLE])
def test_csv_and_json_take_the_same_text(kind: Any, taken: dict[str, Any], refused: list[str]) -> None:
    """Each value is the expected one, and each other text is a reject that names column, type and text."""
    texts = [text for pair in zip(taken, refused, strict=False) for text in pair]
    texts += [*taken][len(texts) // 2 :] + refused[len(texts) // 2 :]
    values, reasons = from_csv(kind, texts)
    assert values == [taken[text] for text in texts if text in taken]
    assert len(reasons) == len(refused)
    name = ColumnType.of(kind).name
    for text, reason in zip((each for each in texts if each not in taken), reasons, strict=True):
        assert reason.startswith(f"column 'v' ({name}): '{text if len(text) <= 40 else text[:39] + '…'}' ")
    writings = [[json.dumps(text) for text in texts]] if not is_number(kind) or "decimal" in name else []
    if is_number(kind):
        texts = [text for text in texts if JSON_NUMBER.fullmatch(text)]
        writings.append(texts)
    for written in writings:
        expected = [taken[text] for text in texts if text in taken] if written is texts else values
        assert from_json(kind, written)[0] == expected


def test_the_reason_names_the_zone_in_which_the_year_is_none() -> None:
    """Whatever is right about the text otherwise."""
    kinds = {"9999-12-31T23:59:59Z": "Europe/Paris", "0001-01-01T00:00:00+01:00": "UTC"}
    for (text, zone), clocks in zip(kinds.items(), ("UTC and Europe/Paris", "UTC"), strict=True):
        (reason,) = from_json(f"timestamp[us, {zone}]", [f'"{text}"'])[1]
        assert f"'{text}' is not of the years 1 to 9999 in {clocks}, in: " in reason
    nested = from_json("list<struct<at: timestamp[us, Europe/Paris]>>", ['[{"at": "9999-12-31T23:59:59Z"}]'])
    assert nested[0] == []
    assert "member 'at': '9999-12-31T23:59:59Z' is not of the years 1 to 9999 in UTC and Europe/Paris" in nested[1][0]


def test_truth_is_written_in_few_ways() -> None:
    """In JSON as JSON says; in CSV in any case, or as a digit."""
    assert from_csv("bool", [*BOOLS, "yes", "T", "2", " true"])[0] == list(BOOLS.values())
    values, reasons = from_json("bool", ["true", "false", "null", '"true"', "1", "0", "[true]"])
    assert values == [True, False, None]
    assert reasons[0] == """column 'v' (bool): 'true' is neither true nor false, in: {"v": "true"}"""


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("int64", ['"1"', "true", "[1]", "{}", "1.0", "1e3", "1e999"]),
        ("double", ['"1"', '"nan"', "true", "1e999"]),
        ("string", ["1", "true", "[]", "{}", '"\\ud800"', '"\\udc00"']),
        ("date32", ["19000", "true", '""', '"2024-02-30"']),
        ("decimal(9, 2)", ["true", "[1]", "1.234", '""']),
    ],
)
def test_json_of_another_kind_is_refused_by_itself(kind: str, values: list[str]) -> None:
    """Beside lines that are right."""
    mixed = [value for each in values for value in ("null", each)]
    taken, reasons = from_json(kind, mixed)
    assert taken == [None] * len(values)
    assert len(reasons) == len(values)


@pytest.mark.parametrize("text", ["1400000000000000000000", "14e20", "1e80", "1e2\\u0030", "12e-39", "1" * 60])
@pytest.mark.parametrize("lines", [1, 600])
def test_decimals_that_do_not_fit_are_refused_in_json(text: str, lines: int) -> None:
    """Alone and behind many others, as a number and in a string."""
    refused = [f'"{text}"'] if "\\" in text else [text, f'"{text}"']
    values, reasons = from_json("decimal(38, 30)", ["1"] * lines + refused)
    assert values == [Decimal(1)] * lines
    assert len(reasons) == len(refused)


def test_words_of_the_app_stand_for_no_value_in_json() -> None:
    """In strings, whatever the type; other strings count."""
    columns = {"v": "int64", "t": "string", "d": "date32"}
    made = RECORD_FORMATS.make({"type": "json_lines", "columns": columns, "null_values": ["NA"]})
    values, reasons = read(made, b'{"v":"NA","t":"NA","d":"NA"}\n{"v":1,"t":"x","d":"NA"}\n{"v":"N"}\n')
    assert values == [None, 1]
    assert reasons == ["""column 'v' (int64): 'N' is no number, in: {"v":"N"}"""]


LITERALS = st.sampled_from([text for _, taken, refused in TABLE for text in [*taken, *refused]]) | st.text(
    "+-0159.eE:TZ "
)


@given(st.sampled_from([kind for kind, _, _ in TABLE]), st.lists(LITERALS, max_size=12), st.integers(1, 60))
def test_any_cut_gives_the_same_values(kind: Any, texts: list[str], block_size: int) -> None:
    """Whatever stands beside a text, in its batch or not, it is a value or a reject."""
    content = "".join(f'"{text}",x\n' for text in texts).encode()
    made = RECORD_FORMATS.make({"type": "csv", "header": False, "columns": {"v": kind, "x": "string"}})
    whole, alone = read_cut(made, content, len(content) + 1), read_cut(made, content, block_size)
    assert whole == alone
    values = [value for text in texts for value in (from_csv(kind, [text])[0])]
    assert from_csv(kind, texts)[0] == values or any(value != value for value in values)


DOC = (Path(__file__).parents[4] / "docs" / "types.md").read_text()
ROWS = re.findall(
    r"^\| `([^`]+)` \| (.*) \| (.*) \|$", DOC[DOC.index("| type |") : DOC.index("## Patterns")], re.MULTILINE
)


@pytest.mark.parametrize(("kind", "taken", "refused"), ROWS, ids=[row[0] for row in ROWS])
def test_the_examples_of_the_page_are_as_it_says(kind: str, taken: str, refused: str) -> None:
    """Each that it says is a value is one, and each other is a reject."""
    right, wrong = re.findall("`([^`]*)`", taken), re.findall("`([^`]*)`", refused)
    content = "".join(f'"{text}",\n' for text in [*right, *wrong]).encode()
    made = RECORD_FORMATS.make({"type": "csv", "header": False, "columns": {"v": kind, "x": "string"}})
    records, _ = read_cut(made, content, len(content) + 1)
    assert [record.decode() for _, record in records] == [f'"{text}",' for text in right]
