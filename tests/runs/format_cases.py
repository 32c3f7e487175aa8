"""Every option of every format, at work: what an app makes of some content, worked out by other means."""

from __future__ import annotations

import csv
import io
import json
import re
import struct
from dataclasses import dataclass, field
from typing import Any

from operators.reader.formats import RECORD_FORMATS

NAME = "input.txt"

LINES = b"\xef\xbb\xbfone\r\n\r\nthree, longer\rfour\n\n" * 3 + b"last"
BARS = b"a|||b||||c|d||" * 4 + b"end|"
ESCAPED = rb"plain^nnone ^\nn more ^^^^n^^^n^" + b"n" + b"x^\ny\nlast^^\n" * 3
LOG = b"continued\n2026-01-02 first\n\tat a\n\tat b\r\n2026-01-03 second\n12 no\n" * 3
STANZAS = b"\n  \nA: 1\nB: 2\n\n\n \t\nA: 3\r\n\r\nA: 4 and more\n\n" * 2
TABLE = 'id,name,ratio\n1,"a ""b"", c",0.5\n\n2,"two\nlines\r\n",1.25\r\n3,plain,\n'
ROWS = TABLE + '4,"x\n""\n,",2\n' * 5
MARKUP = (
    "<?xml version='1.0'?><!DOCTYPE t [<!ELEMENT a ANY>]><t><!-- <a>no</a> --><a x='>'>1<a/><a>2</a></a> text "
    "<![CDATA[<a>]]><ab>no</ab><a\n/></t>\n"
) * 3
VALUES = b'{"n": 1, "s": "a", "more": [1]}\r\n\n  \n{"s": "b\\n"}\n{"n": null, "s": "\xc3\xa4"}\n' * 3


@dataclass(frozen=True)
class FormatCase:
    """A format with options.

    Attributes:
        format: As YAML gives it.
        content: A file.
        published: What a RecordWriter must make of its records.
        rejects: Offset and bytes of each record that is refused.
        cuts: Sizes of the blocks to try.
    """

    format: dict[str, Any]
    content: bytes
    published: bytes
    rejects: list[tuple[int, bytes]] = field(default_factory=list)
    cuts: tuple[int, ...] = (1, 5, 1 << 20)

    @property
    def adds_up(self) -> bool:
        """Whether a run of it checks its account."""
        return RECORD_FORMATS.make(self.format).traits.adds_up

    @property
    def label(self) -> str:
        """What a test calls it."""
        return " ".join(str(value) for value in self.format.values())


def is_tagged(record: bytes) -> bool:
    """Whether a record is one, for `validate`: those in TAGGED begin with a tag and end with a dot."""
    return record.startswith(b"#") and record.endswith(b".")


IS_TAGGED = f"{__name__}.is_tagged"
TAGGED = b"#one.\n#two.\nnone\n#three.\n"


def split_lines(content: bytes) -> list[tuple[int, bytes, bytes]]:
    """Offset, bytes and newline of each line."""
    found = re.finditer(rb"([^\r\n]*)(\r\n|\n|\r|$)", content)
    return [(each.start(), each[1], each[2]) for each in found if each[0]]


def as_json(*rows: dict[str, Any]) -> bytes:
    """Lines of JSON as a RecordWriter writes them."""
    return "".join(json.dumps(row, separators=(",", ":"), ensure_ascii=False) + "\n" for row in rows).encode()


def table_of(text: str, **dialect: Any) -> list[list[str]]:
    """Rows by Python's own reader, without empty lines."""
    return [row for row in csv.reader(io.StringIO(text, newline=""), **dialect) if row]


def named(names: list[str], rows: list[list[str]]) -> bytes:
    """Rows as lines of JSON."""
    return as_json(*(dict(zip(names, row, strict=True)) for row in rows))


def prefixed(code: str, *records: bytes) -> bytes:
    """Records, each with its length before it."""
    return b"".join(struct.pack(code, len(record)) + record for record in records)


def varints(*records: bytes) -> bytes:
    """Records, each with its length before it as protobuf writes it."""
    made = b""
    for record in records:
        length = len(record)
        while length > 0x7F:
            made += bytes([length & 0x7F | 0x80])
            length >>= 7
        made += bytes([length]) + record
    return made


def lines_cases() -> list[FormatCase]:
    """Lines, and lines with escapes."""
    body = LINES.removeprefix(b"\xef\xbb\xbf")
    lines = split_lines(body)
    long = {"type": "lines", "max_record": 4}
    kept = b"".join(line + end for _, line, end in lines if len(line) <= 4) + b"\n"
    longer = [(at + 3, line[:4]) for at, line, _ in lines if len(line) > 4]
    cut = b"".join(line[:4] + (end if len(line) <= 4 else b"\n") for _, line, end in lines) + b"\n"
    wide = "a\u3a0a\U0001f600\r\nÄ\n\nend"
    bad = b"good\nb\xffd\nalso good\n\xfe\n"
    bars = BARS.split(b"||")
    return [
        FormatCase({"type": "lines"}, LINES, body + b"\n"),
        FormatCase({"type": "lines", "keep_delimiter": True}, LINES, body),
        FormatCase({"type": "lines", "delimiter": "||"}, BARS, b"".join(bar + b"||" for bar in bars)),
        FormatCase(
            {"type": "lines", "skip_header": 3}, LINES, b"".join(line + end for _, line, end in lines[3:]) + b"\n"
        ),
        FormatCase({**long, "on_long": "skip"}, LINES, kept),
        FormatCase({**long, "on_long": "cut"}, LINES, cut),
        FormatCase({**long, "on_long": "reject"}, LINES, kept, [(at, raw) for at, raw in longer]),
        FormatCase({"type": "lines", "encoding": "utf-16"}, wide.encode("utf-16"), wide.encode() + b"\n"),
        FormatCase({"type": "lines", "encoding": "utf-16-be"}, wide.encode("utf-16-be"), wide.encode() + b"\n"),
        FormatCase({"type": "lines", "encoding": "latin-1"}, b"\xe4\n\xf6", "ä\nö\n".encode()),
        FormatCase(
            {"type": "lines", "encoding": "utf-8", "on_bad_bytes": "replace"},
            bad,
            bad.decode(errors="replace").encode(),
        ),
        FormatCase(
            {"type": "lines", "encoding": "utf-8", "on_bad_bytes": "reject"},
            bad,
            b"good\nalso good\n",
            [(5, b"b\xffd"), (19, b"\xfe")],
        ),
        FormatCase({"type": "lines", "validate": IS_TAGGED}, TAGGED, TAGGED.replace(b"none\n", b"")),
    ]


def escaped_cases() -> list[FormatCase]:
    """Lines with escapes."""
    pieces = [each[0] for each in re.finditer(rb"(?s)((?:[^\n^]|\^.)*)\n", ESCAPED)]
    bare = b"".join(re.sub(rb"(?s)\^(.)", rb"\1", piece) for piece in pieces)
    stars = b"a*|b||c**|d|*||" * 3
    split = re.findall(rb"((?:[^|*]|\*.)*)\|", stars)
    assert b"".join(pieces) == ESCAPED
    assert b"".join(piece + b"|" for piece in split) == stars
    return [
        FormatCase({"type": "escaped_lines", "escape": "^"}, ESCAPED, ESCAPED),
        FormatCase({"type": "escaped_lines", "escape": "^", "unescape": True}, ESCAPED, bare),
        FormatCase({"type": "escaped_lines"}, b"a\\\nb\nc\\\\\nd", b"a\\\nb\nc\\\\\nd\n"),
        FormatCase({"type": "escaped_lines", "escape": "*", "delimiter": "|", "keep_delimiter": True}, stars, stars),
        FormatCase(
            {"type": "escaped_lines", "escape": "*", "delimiter": "|", "max_record": 1, "on_long": "skip"},
            stars,
            b"".join(piece + b"|" for piece in split if len(piece) <= 1),
        ),
        FormatCase({"type": "escaped_lines", "escape": "^", "skip_header": 2}, ESCAPED, b"".join(pieces[2:])),
        FormatCase(
            {"type": "escaped_lines", "escape": "^", "encoding": "utf-16-le", "on_bad_bytes": "reject"},
            "ä^\nö\n".encode("utf-16-le") + b"\x00\xd8\n\0" + "x".encode("utf-16-le"),
            "ä^\nö\nx\n".encode(),
            [(10, b"\x00\xd8")],
        ),
        FormatCase(
            {"type": "escaped_lines", "validate": IS_TAGGED, "delimiter": "\n"},
            TAGGED,
            TAGGED.replace(b"none\n", b""),
        ),
    ]


def csv_cases() -> list[FormatCase]:
    """CSV, beside Python's own reader."""
    names, *rows = table_of(ROWS)
    typed = as_json(*({"id": int(row[0]), "name": row[1], "ratio": float(row[2]) if row[2] else None} for row in rows))
    single = ROWS.replace(",", ";").replace('"', "'")
    escaped = 'a,b\n"x\\"y\n",2\nc\\,d,3\n'
    wrong = 'id,n\n1,2\n1,2,3\n"a\nb"\nx,4\n5,"never\nclosed'
    long = 'a,b\n1,2\n"long, \n so long",3\n4,5\n'
    long_row = (8, b'"long, \n s')
    return [
        FormatCase({"type": "csv"}, ROWS.encode(), named(names, rows)),
        FormatCase(
            {"type": "csv", "delimiter": ";", "quote": "'"},
            single.encode(),
            named(["id", "name", "ratio"], table_of(single, delimiter=";", quotechar="'")[1:]),
        ),
        FormatCase(
            {"type": "csv", "escape": "\\"},
            escaped.encode(),
            named(["a", "b"], table_of(escaped, escapechar="\\")[1:]),
        ),
        FormatCase(
            {"type": "csv", "header": False, "columns": ["x", "y", "z"]},
            ROWS.encode(),
            named(["x", "y", "z"], [names, *rows]),
        ),
        FormatCase({"type": "csv", "columns": {"id": "int64", "ratio": "double"}}, ROWS.encode(), typed),
        FormatCase(
            {"type": "csv", "skip_header": 2},
            b'"made by\nhand"\n# x\n' + ROWS.encode(),
            named(names, rows),
        ),
        FormatCase(
            {"type": "csv", "columns": {"id": "int64"}},
            wrong.encode(),
            as_json({"id": 1, "n": "2"}),
            [(9, b"1,2,3"), (15, b'"a\nb"'), (21, b"x,4"), (25, b'5,"never\nclosed')],
        ),
        FormatCase(
            {"type": "csv", "max_record": 10, "on_long": "reject"},
            long.encode(),
            named(["a", "b"], [["1", "2"], ["4", "5"]]),
            [long_row],
        ),
        FormatCase({"type": "csv", "keep_delimiter": True}, ROWS.encode(), named(names, rows)),
        FormatCase(
            {"type": "csv", "encoding": "latin-1", "null_values": ["NA"], "columns": {"a": "int64"}},
            "a,é\nNA,ö\n1,NA\nx,ü\n".encode("latin-1"),
            as_json({"a": None, "é": "ö"}, {"a": 1, "é": None}),
            [(14, b"x,\xfc")],
        ),
        FormatCase({"type": "csv", "columns": {"c": "string"}}, b"\na,b\n1,2\n", b"", [(1, b"a,b\n1,2\n")]),
        FormatCase({"type": "csv", "max_columns": 1}, b"a,b\n1,2\n", b"", [(0, b"a,b\n1,2\n")]),
        FormatCase({"type": "csv", "stray_quotes": "keep"}, b'a,b\n"1"x,2\n', named(["a", "b"], [["1x", "2"]])),
        FormatCase(
            {"type": "csv", "max_record": 10, "on_long": "skip"},
            long.encode(),
            named(["a", "b"], [["1", "2"], ["4", "5"]]),
        ),
    ]


def json_cases() -> list[FormatCase]:
    """JSON lines, beside Python's own parser."""
    lines = [line for line in VALUES.split(b"\n") if line.strip()]
    objects = [json.loads(line) for line in lines]
    wrong = b'{"n": 1}\n[2]\nnot json\n{"n": "x"}\n{"n": 3}\n'
    return [
        FormatCase({"type": "json_lines"}, VALUES, b"".join(line + b"\n" for line in lines)),
        FormatCase({"type": "json_lines", "keep_delimiter": True}, VALUES, b"".join(line + b"\n" for line in lines)),
        FormatCase(
            {"type": "json_lines", "columns": {"s": "string", "n": "int64"}},
            VALUES,
            as_json(*({"s": each.get("s"), "n": each.get("n")} for each in objects)),
        ),
        FormatCase(
            {"type": "json_lines", "null_values": ["NA"], "columns": {"d": {"type": "date32", "format": "%d.%m.%Y"}}},
            b'{"d": "NA"}\n{"d": "31.12.2024"}\n{"d": "31.2.2024"}\n',
            as_json({"d": None}, {"d": "2024-12-31"}),
            [(32, b'{"d": "31.2.2024"}')],
        ),
        FormatCase(
            {"type": "json_lines", "columns": "infer"},
            b'{"a": 1, "b": "x"}\n' * 4,
            as_json({"a": 1, "b": "x"}) * 4,
        ),
        FormatCase(
            {"type": "json_lines", "skip_header": 1}, b"header\n" + VALUES, b"".join(line + b"\n" for line in lines)
        ),
        FormatCase(
            {"type": "json_lines", "columns": {"n": "int64"}},
            wrong,
            as_json({"n": 1}, {"n": 3}),
            [(9, b"[2]"), (13, b"not json"), (22, b'{"n": "x"}')],
        ),
        FormatCase(
            {"type": "json_lines", "columns": "as_found", "max_columns": 1},
            b'{"a": 1}\n{"a": 1, "b": 2}\n',
            as_json({"a": 1}),
            [(9, b'{"a": 1, "b": 2}')],
        ),
        FormatCase(
            {"type": "json_lines", "max_record": 9, "on_long": "reject"},
            wrong,
            b'{"n": 1}\n[2]\n{"n": 3}\n',
            [(13, b"not json"), (22, b'{"n": "x"')],
        ),
    ]


def text_cases() -> list[FormatCase]:
    """Records of several lines."""
    entries = [entry for entry in re.split(rb"(?m)^(?=\d{4}-)", LOG) if entry]
    stanzas = re.findall(rb"(?m)(?:^(?:[^\S\n]*\S.*)\n?)+", STANZAS)
    bare = [stanza.removesuffix(b"\n").removesuffix(b"\r") for stanza in stanzas]
    regex = {"type": "regex", "pattern": r"\d{4}-"}
    offsets = [LOG.index(entry) if index < 3 else 0 for index, entry in enumerate(entries)]
    assert offsets[0] == 0
    return [
        FormatCase(regex, LOG, LOG),
        FormatCase({**regex, "keep_delimiter": True}, LOG, LOG),
        FormatCase({**regex, "skip_header": 1}, LOG, LOG.removeprefix(b"continued\n")),
        FormatCase(
            {**regex, "max_record": 27, "on_long": "skip"},
            LOG,
            b"".join(entry for entry in entries if len(entry.rstrip(b"\r\n")) <= 27),
        ),
        FormatCase({"type": "paragraphs"}, STANZAS, b"".join(stanza + b"\n\n" for stanza in bare)),
        FormatCase({"type": "paragraphs", "keep_delimiter": True}, STANZAS, STANZAS[STANZAS.index(b"A: 1") :]),
        FormatCase(
            {"type": "paragraphs", "skip_header": 2}, STANZAS, b"".join(stanza + b"\n\n" for stanza in bare[2:])
        ),
        FormatCase(
            {"type": "paragraphs", "max_record": 9, "on_long": "skip"},
            STANZAS,
            b"".join(stanza + b"\n\n" for stanza in bare if len(stanza) <= 9),
        ),
    ]


def binary_cases() -> list[FormatCase]:
    """Records that are found by their length, and files that are one."""
    content = bytes(range(1, 24))
    full, tail = content[:20], content[20:]
    words = [b"", b"one", b"two two", b"\0\xff", b"x" * 150]
    joined = b"".join(words)
    fixed = {"type": "fixed", "length": 5}
    torn = prefixed("<I", b"abc") + b"\x09\0\0\0ab"
    return [
        FormatCase(fixed, content, full, [(20, tail)]),
        FormatCase({**fixed, "tail": "keep"}, content, content),
        FormatCase({**fixed, "tail": "reject"}, full, full),
        FormatCase({"type": "length_prefixed"}, prefixed("<I", *words), joined),
        FormatCase({"type": "length_prefixed", "prefix": 1}, prefixed("<B", *words), joined),
        FormatCase({"type": "length_prefixed", "prefix": 2, "byte_order": "big"}, prefixed(">H", *words), joined),
        FormatCase({"type": "length_prefixed", "prefix": 8, "byte_order": "little"}, prefixed("<Q", *words), joined),
        FormatCase({"type": "length_prefixed", "prefix": "varint"}, varints(*words), joined),
        FormatCase({"type": "length_prefixed", "max_record": 10}, torn, b"abc", [(7, b"\x09\0\0\0ab")]),
        FormatCase(
            {"type": "length_prefixed", "prefix": 2, "max_record": 100},
            prefixed("<H", b"abc", b"y" * 101),
            b"abc",
            [(5, prefixed("<H", b"y" * 101))],
        ),
        FormatCase({"type": "whole_file"}, content, content),
        FormatCase({"type": "whole_file", "columns": True}, b"a\nb", as_json({"path": NAME, "content": "a\nb"})),
        FormatCase({"type": "whole_file", "max_record": 4, "on_long": "skip"}, content, b""),
        FormatCase({"type": "whole_file", "max_record": 4, "on_long": "reject"}, content, b"", [(0, b"")]),
        FormatCase({"type": "json"}, b'[\n1 , {"a":\n"]"},x ]', b'1\n{"a":\n"]"}\n', [(17, b"x")]),
        FormatCase(
            {"type": "json", "records": "$.a[*]", "columns": "infer", "null_values": ["-"], "max_columns": 2},
            b'{"a": [{"b": 1, "c": "-"}, {"b": 2, "d": 1, "e": 1}]}',
            as_json({"b": 1, "c": None}),
            [(27, b'{"b": 2, "d": 1, "e": 1}')],
        ),
        FormatCase({"type": "json", "max_record": 2, "binary": "allow"}, b"[1,123,4]", b"1\n4\n", [(3, b"123")]),
        FormatCase({"type": "xml", "tag": "a"}, MARKUP.encode(), b"<a x='>'>1<a/><a>2</a></a>\n<a\n/>\n" * 3),
        FormatCase(
            {"type": "xml", "tag": "a", "columns": "infer", "null_values": ["-"], "max_columns": 1, "binary": "allow"},
            b"<t><a b='-'/><a b='2'/><a c='3'/></t>",
            as_json({"@b": None}) + as_json({"@b": "2"}),
            [(23, b"<a c='3'/>")],
        ),
        FormatCase(
            {"type": "xml", "tag": "a", "max_record": 12}, b"<t><a>1</a> <a>open", b"<a>1</a>\n", [(12, b"<a>open")]
        ),
        FormatCase({"type": "xml", "tag": "a"}, b"\xff\xfe<\0", b"", [(0, b"\xff\xfe<\0")]),
    ]


CASES = lines_cases() + escaped_cases() + csv_cases() + json_cases() + text_cases() + binary_cases()

# Of each the place, and in place of what is published the error.
FAILURES = [
    FormatCase(
        {"type": "lines", "max_record": 4, "on_long": "fail"}, b"a\nlonger\n", b"the record is longer", [(2, b"long")]
    ),
    FormatCase(
        {"type": "lines", "encoding": "utf-8", "on_bad_bytes": "fail"}, b"a\n\xff\n", b"not valid utf-8", [(2, b"\xff")]
    ),
    FormatCase(
        {"type": "fixed", "length": 3, "tail": "fail"}, b"abcde", b"the file ends after 2 of the 3", [(3, b"de")]
    ),
    FormatCase({"type": "whole_file", "max_record": 2}, b"abc", b"the file is longer than max_record", [(0, b"abc")]),
    FormatCase(
        {"type": "xml", "tag": "a", "max_record": 5}, b"<a>123</a>", b"the element a is longer", [(0, b"<a>123</a>")]
    ),
]

_Wrong = list[tuple[dict[str, Any], str]]
_TEXT: _Wrong = [
    ({"keep_delimiter": "maybe"}, "expected true or false; got"),
    ({"max_record": 0}, "expected at least 1; got"),
    ({"on_long": "drop"}, "'fail', 'skip', 'cut' or 'reject'"),
    ({"skip_header": -1}, "expected at least 0; got"),
]
_LINES: _Wrong = [
    *_TEXT,
    ({"delimiter": ""}, "expected text of length 1 or more; got"),
    ({"encoding": "utf-99"}, "encoding 'utf-99' is not one that Python knows"),
    ({"encoding": "utf-8", "on_bad_bytes": "ignore"}, "'fail', 'replace' or 'reject'"),
    ({"validate": "nowhere.at_all"}, "function 'nowhere.at_all': cannot import nowhere"),
]
_WRONG: dict[str, _Wrong] = {
    "lines": [*_LINES, ({"delimeter": "x"}, "did you mean 'delimiter'")],
    "escaped_lines": [
        *_LINES,
        ({"escape": "ab"}, "expected text of length 1 or less; got"),
        ({"escape": "|", "delimiter": "||"}, "is part of the delimiter"),
        ({"unescape": 3}, "expected true or false; got"),
    ],
    "csv": [
        *_TEXT,
        ({"delimiter": "::"}, "it is one ASCII character, such as"),
        ({"quote": ","}, "must be different characters"),
        ({"escape": "\u00e4"}, "it is one ASCII character, such as"),
        ({"stray_quotes": "eat"}, "'reject' or 'keep'"),
        ({"max_columns": 0}, "expected at least 1; got 0"),
        ({"header": False}, "columns must be given where there is no header"),
        ({"columns": {"a": "int65"}}, "there is no type 'int65'"),
        ({"columns": {"a": {"type": "int64", "format": "%d"}}}, "the type 'int64' takes no format"),
        ({"encoding": "cp037"}, "rows cannot be cut in it"),
        ({"null_values": "NA"}, "list"),
    ],
    "json_lines": [
        *_TEXT,
        ({"columns": {"a": "nothing"}}, "there is no type 'nothing'"),
        ({"null_values": "NA"}, "list"),
        ({"max_columns": 0}, "expected at least 1; got 0"),
    ],
    "paragraphs": _TEXT,
    "regex": [*(({"pattern": "x", **wrong}, message) for wrong, message in _TEXT), ({"pattern": "("}, "pattern")],
    "fixed": [
        ({}, "needs option 'length'"),
        ({"length": 0}, "expected at least 1; got"),
        ({"length": 1, "tail": "eat"}, "'reject', 'keep'"),
    ],
    "length_prefixed": [
        ({"prefix": 3}, "option 'prefix'.*1, 2, 4, 8 or 'varint'"),
        ({"byte_order": "middle"}, "'little' or 'big'"),
        ({"max_record": "many"}, "'many' is not a size"),
    ],
    "whole_file": [
        ({"columns": 5}, "expected true or false; got"),
        ({"max_record": 0}, "expected at least 1; got"),
        ({"on_long": "cut"}, "'fail', 'skip'"),
    ],
    "json": [
        ({"records": "items"}, "expected text that matches"),
        ({"columns": {"a": "integr"}}, "there is no type 'integr'"),
        ({"max_columns": 0}, "expected at least 1; got"),
        ({"null_values": "NULL"}, "expected a list"),
        ({"max_record": 0}, "expected at least 1; got"),
        ({"binary": "maybe"}, "expected 'refuse' or 'allow'; got"),
    ],
    "xml": [
        ({}, "needs option 'tag'"),
        ({"tag": "a b"}, "expected text that matches"),
        ({"tag": "a", "max_record": 0}, "expected at least 1; got"),
        ({"tag": "a", "columns": {"b": "list<list<int64>>"}}, "is no list of values"),
        ({"tag": "a", "max_columns": 0}, "expected at least 1; got"),
        ({"tag": "a", "null_values": "NULL"}, "expected a list"),
        ({"tag": "a", "binary": "maybe"}, "expected 'refuse' or 'allow'; got"),
    ],
}
MISUSES = [({"type": name, **options}, message) for name, wrong in _WRONG.items() for options, message in wrong]
"""Formats with an option that cannot be, and what is said of it."""
