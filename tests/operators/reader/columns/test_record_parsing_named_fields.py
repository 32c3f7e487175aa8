"""Lines of name, colon and value."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from operators.reader.columns.record_parsing import NamedFields

NAMES = ["a", "b:", "é"]


def by_lines(text: str) -> list[str | None]:
    """The values of NAMES, line by line; all None for a text that is refused."""
    values: dict[str, str] = {}
    twice: set[str] = set()
    name = None
    for line in text.split("\n"):
        if line[:1] in (" ", "\t") and name is not None:
            values[name] += f"\n{line}"
        elif line[:1] not in ("", "\r"):
            name, colon, value = line.partition(":")
            if not colon or not name or name[0] in " \t":
                return [None] * len(NAMES)
            twice |= {name} & values.keys()
            values[name] = value
        elif name is not None:
            values[name] += f"\n{line}"
    if twice & set(NAMES):
        return [None] * len(NAMES)
    return [values[name].strip("\t\n\v\f\r ") if name in values else None for name in NAMES]


@given(st.lists(st.text("ab:é \n\r\t", max_size=12), min_size=1, max_size=5), st.integers(0, 4))
def test_fields_are_those_that_a_reader_of_lines_finds(texts: list[str], skipped: int) -> None:
    """Whatever the texts hold, each by itself, also in a part of an array."""
    array = pa.array([*["a: 0\n"] * skipped, *texts]).slice(skipped)
    found = NamedFields(NAMES).values(array)
    assert [list(row) for row in zip(*(column.to_pylist() for column in found), strict=True)] == [*map(by_lines, texts)]


def test_a_text_that_is_refused_has_a_reason() -> None:
    """Of its first line that is wrong."""
    reasons = {
        "a: 1\nb\nc": "line 2 has no name before a colon, and goes on with no other",
        "c: 1": "none of the fields is there",
        " a: 1": "line 1 has no name before a colon, and goes on with no other",
        "": "none of the fields is there",
        "a: 1\nb: 2\na: 3": "the field 'a' is there twice",
    }
    assert NamedFields(["a", "b"]).why_not(pa.array([*reasons])) == [*reasons.values()]
