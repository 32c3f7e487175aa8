"""Cases of the options by which text becomes columns: in csv, fixed, paragraphs and regex."""

from __future__ import annotations

from typing import Any

from tests.runs.format_cases import ROWS, FormatCase, as_json, named, table_of

GERMAN = {"decimal": ",", "thousands": "."}
FIXED = {"type": "fixed", "length": 5}
ENTRIES = {"type": "regex", "pattern": "[ab{]"}


def way_cases(format: dict[str, Any], between: bytes) -> list[FormatCase]:
    """The ways of Parse in a format whose records have some bytes between them."""
    in_fields = between.join([b"a: 1", b"a: x"])
    return [
        FormatCase(
            {**format, "regex": "(?P<a>.)=1", "unmatched": "drop"}, b"a=1" + between + b"b", as_json({"a": "a"})
        ),
        FormatCase(
            {**format, "split": {"delimiter": "=", "names": ["k", "v"]}, "columns": {"v": "int8"}},
            b"a=1",
            as_json({"k": "a", "v": 1}),
        ),
        FormatCase({**format, "key_value": {"keys": ["a"]}}, b"b=2 a=1", as_json({"a": "1"})),
        FormatCase(
            {**format, "fields": True, "columns": {"a": "int8"}},
            in_fields,
            as_json({"a": 1}),
            [(in_fields.index(b"a: x"), b"a: x")],
        ),
        FormatCase({**format, "json": True, "columns": {"a": "int8"}}, b'{"a": 1}', as_json({"a": 1})),
    ]


COLUMN_CASES = [
    FormatCase({"type": "csv"}, ROWS.encode("utf-16"), named(table_of(ROWS)[0], table_of(ROWS)[1:])),
    FormatCase(
        {"type": "csv", "comment": "#", "delimiter": ";", "columns": {"n": "double"}, **GERMAN},
        b"#x\nn;s\n1.234,5;a\n#\n1.5;b\n",
        as_json({"n": 1234.5, "s": "a"}),
        [(19, b"1.5;b")],
    ),
    FormatCase(
        {"type": "csv", "trailer": {"rows": r"T,(?P<count>\d+)"}}, b"n,s\n1,a\nT,1\n", as_json({"n": "1", "s": "a"})
    ),
    FormatCase(
        {**FIXED, "encoding": "cp037", "trim": False, "columns": {"a": [0, 2, "int8"], "b": [2, 5]}},
        "12a  x1b  ".encode("cp037"),
        as_json({"a": 12, "b": "a  "}),
        [(5, "x1b  ".encode("cp037"))],
    ),
    *way_cases({"type": "paragraphs"}, b"\n\n"),
    *way_cases(ENTRIES, b"\n"),
]

_WAYS: list[tuple[dict[str, Any], str]] = [
    ({"regex": "("}, "option 'regex'"),
    ({"split": {"delimiter": "", "names": ["a"]}}, "option 'split.delimiter'"),
    ({"key_value": {"keys": ["a"], "separator": ""}}, "option 'key_value.separator'"),
    ({"fields": "maybe"}, "expected true or false; got"),
    ({"json": "maybe"}, "expected true or false; got"),
    ({"columns": {"a": "int65"}}, "there is no type 'int65'"),
    ({"unmatched": "eat"}, "option 'unmatched'"),
]

COLUMN_MISUSES: list[tuple[dict[str, Any], str]] = [
    ({"type": "csv", "comment": ","}, "must be different characters"),
    ({"type": "csv", "decimal": "x"}, "option 'decimal'"),
    ({"type": "csv", "thousands": "1"}, "option 'thousands'"),
    ({"type": "csv", "trailer": {"rows": "T,(?P<n>.)"}}, "must be named count, got 'n'"),
    ({**FIXED, "columns": {"a": [0, 6]}}, "'a' ends at byte 6"),
    ({**FIXED, "columns": {"a": [0, 1]}, "encoding": "utf-99"}, "'utf-99' is not one that Python knows"),
    ({**FIXED, "trim": "maybe"}, "expected true or false; got"),
    *(({"type": "paragraphs", **wrong}, message) for wrong, message in _WAYS),
    *(({**ENTRIES, **wrong}, message) for wrong, message in _WAYS),
]
