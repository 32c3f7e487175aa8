"""RecordFilter against what Python says of each record."""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pydantic import ValidationError

from dagflow.api.records import Delimiters, RecordBatch
from dagflow.errors import OperatorError
from dagflow.testing.operators import run_operator
from operators.aggregate.count_by import CountBy
from operators.transform.record_filter import RecordFilter

TEXTS = st.lists(st.text("ab.\né", max_size=5).map(str.encode), max_size=12)
PREDICATES: dict[str, Callable[[bytes, bytes], bool]] = {
    "prefix": bytes.startswith,
    "suffix": bytes.endswith,
    "contains": bytes.__contains__,
}


@given(
    TEXTS,
    st.text("ab.\né", max_size=3),
    st.sampled_from(sorted(PREDICATES)),
    st.sampled_from([b"\n", b"\r\n", b"ab", b""]),
)
@example([b""], "b", "contains", b"ab")  # only the delimiter holds it
def test_keep_and_drop_divide_the_records_as_python_would(
    records: list[bytes], pattern: str, kind: str, delimiter: bytes
) -> None:
    """What keep passes and what drop passes are exactly the matching and the other records, in order."""
    framed = RecordBatch.from_records(records, Delimiters((delimiter,)))
    batch = RecordBatch(framed=framed.framed(), delimiters=Delimiters((delimiter,)))
    matching = [record for record in records if PREDICATES[kind](record, pattern.encode())]
    others = [record for record in records if not PREDICATES[kind](record, pattern.encode())]
    assert run_operator(RecordFilter(keep={kind: pattern}), batch)["output"] == matching
    assert run_operator(RecordFilter(drop={kind: pattern}), batch)["output"] == others


def test_regex_matches_anywhere_and_anchors_at_the_record() -> None:
    """Anchors stand for the ends of the record, not of the file."""
    records = [b"GET /a 200", b"GET /b 404", b"404 first"]
    assert run_operator(RecordFilter(keep={"regex": r"404$"}), records)["output"] == [b"GET /b 404"]
    assert run_operator(RecordFilter(keep={"regex": r"^404"}), records)["output"] == [b"404 first"]


@pytest.mark.parametrize(
    ("regex", "kept"),
    [
        ("^[éè]", ["é1", "è"]),
        ("(?i)^É", ["é1", "É"]),
        ("^.$", ["è", "ñ", "É"]),
        ("^..$", ["é1", "à2", "ab"]),
        ("ñ?b$", ["ab"]),
    ],
)
@pytest.mark.parametrize("others", [[], [b"\xff\xff\xff"]], ids=["text", "bytes"])
def test_a_regex_sees_characters_not_bytes(regex: str, kept: list[str], others: list[bytes]) -> None:
    """Also of records beside one that is not UTF-8; a null is no match."""
    texts = ["é1", "à2", "è", "ñ", "É", "ab"]
    records = [*(text.encode() for text in texts), *others]
    expected = [text.encode() for text in kept]
    assert run_operator(RecordFilter(keep={"regex": regex}), records)["output"] == expected
    rows: list[bytes | None] = [*records, None]
    batch = RecordBatch(pa.RecordBatch.from_pydict({"record": pa.array(rows, pa.binary()), "n": [1] * len(rows)}))
    found = run_operator(RecordFilter(keep={"regex": regex}), batch)["output"]
    assert found == [{"record": record, "n": 1} for record in expected]


@pytest.mark.parametrize("regex", [r"\xff$", "é.é", "^.{6}$"])
def test_a_regex_sees_bytes_of_a_record_that_is_no_text(regex: str) -> None:
    """Each byte is then one character; what stands in the expression itself is found as its bytes."""
    record = "é-é".encode() + b"\xff"
    assert run_operator(RecordFilter(keep={"regex": regex}), [record, b"x"])["output"] == [record]


@pytest.mark.parametrize("kind", ["prefix", "suffix", "contains", "regex"])
def test_columns_beside_the_record_stay(kind: str) -> None:
    """What counted the records has put a column beside them, which a filter must not lose."""
    counts = run_operator(CountBy(by="record"), [b"a", b"b", b"a"])["output"]
    assert run_operator(RecordFilter(keep={kind: "a"}), counts)["output"] == [{"record": b"a", "count": 2}]
    assert run_operator(RecordFilter(drop={kind: "a"}), counts)["output"] == [{"record": b"b", "count": 1}]


@pytest.mark.parametrize("kind", ["prefix", "suffix", "contains", "regex"])
def test_every_row_is_either_kept_or_dropped(kind: str) -> None:
    """A null matches nothing, so it is among all the others."""
    batch = RecordBatch(pa.RecordBatch.from_pydict({"record": ["a", None], "n": [1, 2]}))
    assert run_operator(RecordFilter(keep={kind: "a"}), batch)["output"] == [{"record": "a", "n": 1}]
    assert run_operator(RecordFilter(drop={kind: "a"}), batch)["output"] == [{"record": None, "n": 2}]


@pytest.mark.parametrize("kind", ["prefix", "suffix", "contains", "regex"])
@pytest.mark.parametrize("column", ["record", "name"])
def test_records_without_text_of_their_own_are_refused(kind: str, column: str) -> None:
    """The message says what there is instead."""
    with pytest.raises(OperatorError, match=f"column 'record' of text or bytes.*there is {column}: int64"):
        run_operator(RecordFilter(keep={kind: "a"}), [{column: 1}])


def test_exactly_one_of_keep_and_drop_is_asked_for() -> None:
    """A filter that does nothing, or two things, is a mistake in the app."""
    with pytest.raises(ValueError, match="exactly one of keep and drop"):
        RecordFilter()
    with pytest.raises(ValueError, match="exactly one of keep and drop"):
        RecordFilter(keep={"prefix": "a"}, drop={"prefix": "b"})


@pytest.mark.parametrize(
    ("match", "message"),
    [
        ({}, "exactly one of prefix, suffix, contains, regex; got none"),
        ({"prefix": "a", "suffix": "b"}, "got prefix, suffix"),
        ({"regex": "("}, "not a valid RE2 expression"),
        ({"begins": "a"}, "begins"),
    ],
)
def test_a_match_that_makes_no_sense_is_refused_at_construction(match: dict[str, str], message: str) -> None:
    """Nothing waits until the first record."""
    with pytest.raises(ValidationError, match=message):
        RecordFilter(drop=match)
