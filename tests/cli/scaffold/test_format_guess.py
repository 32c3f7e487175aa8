"""The format of a file is guessed from its first bytes."""

from __future__ import annotations

import pytest

from dagflow.cli.scaffold.format_guess import guess_format
from dagflow.errors import DagflowError

LOG = "2024-03-04 10:01:05.170 INFO started\n2024-03-04 10:01:06.170 ERROR failed\n"


@pytest.mark.parametrize(
    ("text", "name", "options"),
    [
        ("a,b\n1,2\n", "csv", {}),
        ("a;b;c\n1;2,5;3\n", "csv", {"delimiter": ";"}),
        ("a\tb\n1\t2\n", "csv", {"delimiter": "\t"}),
        ("# made by\n# hand\na,b\n1,2\n", "csv", {"skip_header": 2}),
        ("1,2\n3,4\n", "csv", {"header": False}),
        ('a,b\n"x\n\n,",2\n"""",3\n', "csv", {}),
        ("sep=;\na;b\n1;2\n", "csv", {"delimiter": ";", "skip_header": 1}),
        ('"sep=|"\r\n#x\r\na,1|b\r\n1|2\r\n', "csv", {"delimiter": "|", "skip_header": 2}),
        ("a,b\n1,n/a\n2,3\n", "csv", {"null_values": ["", "n/a"]}),
        ("2024-01-01 10:00:00,1\n2024-01-01 10:00:01,2\n", "csv", {"header": False}),
        ('{"a": 1}\n\n{"b": [1]}\n', "json_lines", {}),
        ('{"a": 1}\n{"a": 2}\n[1, 2]\n{"a": 3}\n', "json_lines", {}),
        ('[\n  {"a": 1}\n]\n', "json", {}),
        ('[{"a": 1}, {"a": 2}]', "json", {}),
        ("[\n1,\n2]", "whole_file", {"columns": True}),
        ('{"n": [1],\n "d": {"items": [\n{"a": [{}]}, {"a": 1}]}}', "json", {"records": "$.d.items[*]"}),
        ('{"a": [{}],\n "b": [{}]}', "whole_file", {"columns": True}),
        ("<r><x>1</x><x a='>'>2</x><y/></r>", "xml", {"tag": "x"}),
        ("<note>one</note>", "whole_file", {"columns": True}),
        (LOG, "lines", {}),
        (LOG + "\tat x\n", "regex", {"pattern": r"\[?\d{4}-\d\d-\d\d[T ]\d\d:\d\d"}),
        ("[not json] a, b\nanother, line, here\n", "lines", {}),
        ("A: 1\nB: 2\n more\n\nA: 3\n", "paragraphs", {}),
        ("one\ntwo\n", "lines", {}),
        ("a,b,c\n1,2,3,4\n1,2,3\n", "lines", {}),
        ("x", "lines", {}),
    ],
)
def test_a_format_is_recognised_by_the_first_bytes(text: str, name: str, options: dict[str, object]) -> None:
    """Also where these are not all of the file, so that the last record is cut."""
    for head, is_whole in ((text, True), (text + text[-4:-1] * 2 if name == "lines" else text, name != "lines")):
        found = guess_format(head.encode(), is_whole=is_whole)
        assert (found.name, dict(found.options)) == (name, options)
    assert found.evidence


def test_fields_of_paragraphs_are_columns_unless_lines_are_none() -> None:
    """Of all whole paragraphs; words for no value make text, as the reader takes them for it alone."""
    text = "A: 1\nB: NA\n more\nC: NA\n\nA: 2\nC: 3\nD: x\n\nA: x"
    columns = {column.name: column.type for column in guess_format(text.encode(), is_whole=False).columns}
    assert columns == {"A": "int64", "B": "string", "C": "string", "D": "string"}
    assert guess_format(text.encode(), is_whole=True).columns[0].type == "string"
    assert guess_format((text.replace("D: x", "C: x")).encode(), is_whole=False).columns == ()


@pytest.mark.parametrize(
    ("row", "name"),
    [
        (r'"a \"q\" b"', 'a "q" b'),
        (r'"x, \"y\""', 'x, "y"'),
        (r'"\\ ""\"\n"', r'\ ""n'),
        (r'"C:\d\"', None),
        (r'"{""a"": ""\""""}"', None),
        (r"a \"q\" b", None),
        (r'"a \ b"', None),
    ],
)
def test_a_backslash_is_an_escape_where_no_row_is_whole_without(row: str, name: str | None) -> None:
    """Also before a row that is cut in its quotes; a backslash that quotes do not need is a character."""
    text = "id,name\n" + "".join(f"{number},{row}\n" for number in range(3))
    for cut in range(len(row) + 3):
        found = guess_format((text + f"4,{row}"[:cut]).encode(), is_whole=False)
        assert (found.name, dict(found.options)) == ("csv", {} if name is None else {"escape": "\\"})
        assert name is None or found.columns[1].evidence == f"such as {name}"


@pytest.mark.parametrize(
    ("head", "encoding"), [("a,b\né,1\n".encode("latin-1"), "latin-1"), ("a,b\n€,1\n".encode("cp1252"), "cp1252")]
)
def test_bytes_that_are_no_utf_8_have_an_encoding(head: bytes, encoding: str) -> None:
    """Western ones, recognised by the bytes that only Windows uses; a character that is cut is no sign."""
    assert guess_format(head, is_whole=True).options["encoding"] == encoding
    assert "encoding" not in guess_format("a,b\n1,2\n3,é".encode()[:-1], is_whole=False).options
    assert guess_format("a\n".encode("utf-16"), is_whole=True).options == {"encoding": "utf-16"}
    rows = guess_format("a,b\n1,é\n".encode("utf-16"), is_whole=True)
    assert (rows.name, rows.options, rows.columns[0].type) == ("csv", {"encoding": "utf-16"}, "int64")


@pytest.mark.parametrize(("head", "what"), [(b"%PDF-1.7", "it is PDF"), (b"a\0b", "a zero byte at offset 1")])
def test_what_is_not_text_is_refused(head: bytes, what: str) -> None:
    """With what it is, and what to do."""
    with pytest.raises(DagflowError, match=what) as error:
        guess_format(head, is_whole=True)
    assert error.value.hint
