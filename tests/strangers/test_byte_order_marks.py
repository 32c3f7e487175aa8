"""Files whose first bytes name its encoding, in every text format, with every separator."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from operators.reader.formats import RECORD_FORMATS
from operators.reader.formats.base import ByteAccounting, HeaderError
from operators.testing import URL, MemorySource, block_of, read_cut, read_range

MARKS = {
    "utf-8": b"\xef\xbb\xbf",
    "utf-16-le": b"\xff\xfe",
    "utf-16-be": b"\xfe\xff",
    "utf-32-le": b"\xff\xfe\0\0",
    "utf-32-be": b"\0\0\xfe\xff",
}
WIDE = [name for name in MARKS if name != "utf-8"]


def marked(text: str, encoding: str) -> bytes:
    """The text with the byte order mark of its encoding."""
    return MARKS[encoding] + text.encode(encoding)


@pytest.mark.parametrize("encoding", MARKS)
@pytest.mark.parametrize("delimiter", [None, "|", ";", "\t", "||", "§", "x", "\\n", "表"])
@pytest.mark.parametrize("kind", ["lines", "escaped_lines"])
def test_the_mark_decides_the_byte_order_for_every_delimiter(encoding: str, delimiter: str | None, kind: str) -> None:
    """The name of the encoding may leave it open; no code unit is mistaken for part of a character."""
    options: dict[str, Any] = {"escape": "^"} if kind == "escaped_lines" else {}
    made = RECORD_FORMATS.make({"type": kind, "encoding": encoding[:6].rstrip("-"), "delimiter": delimiter, **options})
    content = marked(f"a,1{delimiter or chr(10)}é{delimiter or chr(10)}", encoding)
    for size in (1, 2, 3, len(content)):
        records, rejects = read_cut(made, content, size)
        assert ([record for _, record in records], rejects) == ([b"a,1", "é".encode()], [])


FORMATS: list[dict[str, Any]] = [
    *({"type": "csv", "delimiter": each} for each in ",;\t|"),
    *({"type": "csv", "delimiter": each, "header": False, "columns": ["a", "b"]} for each in ",;\t|"),
    {"type": "csv", "header": False, "columns": ["a"], "quote": "none", "skip_header": 1},
    {"type": "json_lines"},
    {"type": "json_lines", "columns": {"a": "int64"}},
    {"type": "lines"},
    {"type": "lines", "on_long": "skip"},
    {"type": "escaped_lines"},
    {"type": "paragraphs"},
    {"type": "regex", "pattern": "a"},
]


@pytest.mark.parametrize("format", FORMATS, ids=str)
@pytest.mark.parametrize("encoding", WIDE)
@pytest.mark.parametrize("has_mark", [True, False])
def test_a_format_that_reads_bytes_refuses_files_of_wider_units(
    format: dict[str, Any], encoding: str, has_mark: bool
) -> None:
    """As one reject, wherever blocks are cut, or an error that says what to do; a mark is enough for rows of csv."""
    made = RECORD_FORMATS.make(format if not has_mark or format["type"] != "csv" else format | {"encoding": "utf-8"})
    content = marked("日本,b\n1,2\n", encoding)[0 if has_mark else len(MARKS[encoding]) :]
    shown = f"{encoding[:6].upper()}, by its byte order mark" if has_mark else f"{encoding.upper()}, by the zero bytes"
    for size in (1, 3, len(content)):
        assert read_cut(made, content, size) == ([], [(0, len(content))])
    accounting = ByteAccounting(URL, Counter(), None)
    block = block_of(content, 2, len(content))
    remedy = "name its encoding" if made.name in ("csv", "lines", "escaped_lines") else "to UTF-8 first, as with iconv"
    with pytest.raises(HeaderError, match=f"the file is in {shown}.*; .*{remedy}"):
        list(made.read(MemorySource(content), block, accounting))


@pytest.mark.parametrize(
    "content", [b"\0a,b\n", b"a\0\nb\0\n", b"\0\0\0a\n", b"a\n\0\n", b"x\0\xff\n", b"a\0", b"\0\0"]
)
def test_zeros_in_text_of_bytes_are_no_wide_encoding(content: bytes) -> None:
    """Lines may hold any bytes."""
    records, rejects = read_cut(RECORD_FORMATS.make("lines"), content, 3)
    assert (b"".join(record + b"\n" for _, record in records)[: len(content)], rejects) == (content, [])


@pytest.mark.parametrize("format", FORMATS, ids=str)
def test_after_the_advised_conversion_the_file_is_read(format: dict[str, Any]) -> None:
    """With the mark of UTF-8, which is no part of the first record, as without one."""
    made = RECORD_FORMATS.make(format)
    row = format.get("delimiter", "x").join("ab")
    text = f"{row}\n{row.upper()}\n" if made.name == "csv" else '{"a":1}\n\na,b\n'
    contents = [marked(text, "utf-8"), text.encode()]
    found = [read_range(made, content, 0, len(content)) for content in contents]
    assert [record for _, record in found[0][0]] == [record for _, record in found[1][0]]
    assert found[0][0]
