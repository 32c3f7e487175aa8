"""Parse makes columns of raw records in five ways, and refuses what does not match."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from dagflow.api.records import LINE_FEED, Origin, RecordBatch
from dagflow.errors import OperatorError
from dagflow.testing.operators import run_operator
from operators.transform.parse import Parse


def parsed(records: list[Any], **properties: Any) -> tuple[list[Any], list[str]]:
    """What leaves at both ports: records, and the reasons of rejects."""
    found = run_operator(Parse(**properties), records)
    return found["output"], [json.loads(each)["reason"] for each in found["errors"]]


def test_named_groups_become_columns_of_their_types() -> None:
    """The expression matches whole records; an empty group is null where it is no text."""
    records = [b"GET /a 200", b"GET /b ", b"see GET /c 200", b"GET /d x"]
    rows, reasons = parsed(
        records, regex=r"(?P<method>[A-Z]+) (?P<path>\S*) (?P<status>.*)", columns={"status": "int32"}
    )
    assert rows == [
        {"method": "GET", "path": "/a", "status": 200},
        {"method": "GET", "path": "/b", "status": None},
    ]
    assert reasons == [
        "the record does not match regex, in: see GET /c 200",
        "column 'status' (int32): 'x' is no whole number, in: GET /d x",
    ]


def test_what_does_not_match_may_be_dropped() -> None:
    """But not what has a field of the wrong type."""
    rows, reasons = parsed([b"a=1", b"b", b"a=x"], regex="a=(?P<a>.*)", columns={"a": "int64"}, unmatched="drop")
    assert (rows, reasons) == ([{"a": 1}], ["column 'a' (int64): 'x' is no whole number, in: a=x"])


def test_timestamps_have_patterns() -> None:
    """As those of the reader's columns."""
    pattern = {"type": "timestamp[us, UTC]", "format": "%d/%b/%Y:%H:%M:%S %z"}
    rows, reasons = parsed([b"31/Jan/2024:10:00:00 +0100", b"31/Foo/2024"], regex="(?P<t>.*)", columns={"t": pattern})
    assert rows == [{"t": datetime(2024, 1, 31, 9, tzinfo=UTC)}]
    assert [reason.partition(" (")[0] for reason in reasons] == ["column 't'"]


FIELDS = st.text('ab ="é', max_size=4)


@given(st.lists(st.lists(FIELDS, min_size=1, max_size=4), min_size=1, max_size=10))
def test_a_split_record_has_as_many_fields_as_names(rows: list[list[str]]) -> None:
    """Others are refused, and say how many they have."""
    records = ["||".join(row).encode() for row in rows]
    found, reasons = parsed(records, split={"delimiter": "||", "names": ["a", "b"]})
    assert found == [{"a": row[0], "b": row[1]} for row in rows if len(row) == 2]
    assert [int(reason.split()[3]) for reason in reasons] == [len(row) for row in rows if len(row) != 2]


@given(st.dictionaries(st.sampled_from("abc"), st.text("xy =é", max_size=4), min_size=1))
def test_keys_are_found_in_any_order(pairs: dict[str, str]) -> None:
    """A value with the separator in it stands in quotes; a key that is not there is null."""
    record = " ".join(f'{key}="{value}"' if " " in value else f"{key}={value}" for key, value in pairs.items())
    rows, reasons = parsed([record.encode()], key_value={"keys": ["a", "b"]})
    if pairs.keys() & {"a", "b"}:
        assert (rows, reasons) == ([{"a": pairs.get("a"), "b": pairs.get("b")}], [])
    else:
        assert (rows, len(reasons)) == ([], 1)


def test_a_key_is_no_end_of_another_and_a_quote_in_a_value_is_a_character() -> None:
    """Nothing is lost of what looks like something else."""
    rows, _ = parsed([b'aa=1 a=2"', b"Section: net\nVersion: 1"], key_value={"keys": ["a"]})
    assert rows == [{"a": '2"'}]
    rows, _ = parsed(
        [b"Section: net\nVersion: 1"], key_value={"keys": ["Section"], "separator": "\n", "assignment": ": "}
    )
    assert rows == [{"Section": "net"}]


def test_keys_inside_of_quoted_values_are_none() -> None:
    """A record in which a key is only inside of quotes does not have it."""
    records = [b'msg="failed login user=root retry" user=alice', b'msg="no user=root here"', b"user=eve"]
    rows, reasons = parsed(records, key_value={"keys": ["user", "msg"]})
    assert rows == [
        {"user": "alice", "msg": "failed login user=root retry"},
        {"user": None, "msg": "no user=root here"},
        {"user": "eve", "msg": None},
    ]
    assert reasons == []
    rows, reasons = parsed([b'msg="a;host=evil;b";host=good'], key_value={"keys": ["host"], "separator": ";"})
    assert (rows, reasons) == ([{"host": "good"}], [])
    rows, reasons = parsed([b'msg="a b=1 c"'], key_value={"keys": ["b"]})
    assert (rows, reasons) == ([], ['none of the keys is there, in: msg="a b=1 c"'])


def test_keys_may_hold_the_separator_or_the_assignment() -> None:
    """Also beside values in which separators are inside of quotes."""
    record = b'm="x y" user name=root dc:id=7 a=b="c d"'
    rows, _ = parsed([record], key_value={"keys": ["user name", "dc:id", "a=b"]})
    assert rows == [{"user name": "root", "dc:id": "7", "a=b": "c d"}]


def test_members_of_json_objects_become_columns() -> None:
    """A blank record is refused as well: nothing passes silently."""
    records = [b'{"a": 1, "b": "x", "c": 0}', b'{"a": "z"}', b"{", b"", b"[1]", b'{"b": "y"}']
    rows, reasons = parsed(records, json=True, columns={"a": "int64", "b": "string"})
    assert rows == [{"a": 1, "b": "x"}, {"a": None, "b": "y"}]
    assert len(reasons) == 4


def test_a_column_of_text_is_parsed_and_the_others_stay() -> None:
    """What is made takes the place of the text."""
    rows, reasons = parsed([{"id": 1, "m": "k=1"}, {"id": 2, "m": "?"}], key_value={"keys": ["k"]}, column="m")
    assert (rows, reasons) == ([{"id": 1, "k": "1"}], ["none of the keys is there, in: ?"])


def test_records_keep_their_place_and_rejects_name_it() -> None:
    """Also in a batch of several blocks, and of bytes that are no text."""
    blocks = [type("Block", (), {"url": f"in/{name}.log"})() for name in "ab"]
    origin = Origin(tuple(blocks), np.array([0, 4, 0, 9]), 0, np.array([0, 0, 1, 1], np.int32))
    batch = RecordBatch.from_records([b"k=1", b"\xff", b"?", b"k=2"], LINE_FEED, origin)
    operator = Parse(regex="k=(?P<k>.)")
    kept: list[Any] = []
    refused: list[Any] = []
    operator.output.connect(kept.append)
    operator.errors.connect(refused.append)
    operator.compute(batch)
    assert kept[0].offsets().tolist() == [0, 9]
    assert [kept[0].block_of(row).url for row in (0, 1)] == ["in/a.log", "in/b.log"]
    rejects = [json.loads(each) for each in refused[0].to_pylist()]
    assert [(each["url"], each["offset"], each["length"], each["raw"]) for each in rejects] == [
        ("in/a.log", 4, 1, "/w=="),
        ("in/b.log", 0, 1, "Pw=="),
    ]


def test_rejects_of_tuples_that_name_no_file_have_no_url() -> None:
    """An author's source may read something else than files."""
    batch = RecordBatch.from_records([b"?"], LINE_FEED, Origin(("page 7",), np.array([3])))
    operator = Parse(regex="k=(?P<k>.)")
    refused: list[Any] = []
    operator.errors.connect(refused.append)
    operator.compute(batch)
    (reject,) = map(json.loads, refused[0].to_pylist())
    assert (reject["url"], reject["offset"], reject["raw"]) == ("", 3, "Pw==")


def test_a_batch_of_which_nothing_is_left_has_the_columns() -> None:
    """With their types, for what comes behind."""
    operator = Parse(regex="k=(?P<k>.)", columns={"k": "int64"}, unmatched="drop")
    kept: list[Any] = []
    operator.output.connect(kept.append)
    operator.compute(RecordBatch.from_records([b"?"]))
    assert [(str(field.name), str(field.type)) for field in kept[0].to_arrow().schema] == [("k", "int64")]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({}, "give exactly one of regex, split, key_value, fields, json; got none"),
        ({"regex": "(?P<a>.)", "json": True}, "got regex, json"),
        ({"regex": "a"}, "has no named group"),
        ({"regex": "("}, "is not a valid RE2 expression"),
        ({"regex": "(?P<host>.)", "columns": {"hots": "int64"}}, "there is no 'hots'; did you mean 'host'?"),
        ({"regex": "(?P<host>.)", "columns": {"host": "list<int64>"}}, "'host' is list<int64>, which json alone has"),
        ({"json": True}, "json needs columns"),
        ({"fields": True}, "fields needs columns"),
        ({"split": {"delimiter": ",", "names": ["a", "a"]}}, "'a' is there twice"),
        ({"key_value": {"keys": "a", "separator": "="}}, "separator and assignment must be different"),
        ({"json": True, "columns": {"a": "int64"}, "unmatched": "drop"}, "only regex can leave records unmatched"),
    ],
)
def test_properties_that_do_not_fit_together_are_refused(properties: dict[str, Any], message: str) -> None:
    """With the nearest name."""
    with pytest.raises((ValueError, ValidationError), match=re.escape(message)):
        Parse(**properties)


def test_records_that_have_columns_need_the_name_of_one() -> None:
    """The error lists them, or the nearest."""
    with pytest.raises(OperatorError, match="have columns already; name the one to be parsed as column: message"):
        parsed([{"message": "x"}], regex="(?P<a>.)")
    with pytest.raises(OperatorError, match="there is no column 'mesage'; did you mean 'message'"):
        parsed([{"message": "x"}], regex="(?P<a>.)", column="mesage")


def test_lines_of_name_and_value_become_columns() -> None:
    """As at the head of mails: lines that begin with a blank go on with the value before them."""
    record = b"Subject: a:\r\n b\r\nLines: 12\nEmpty:\n\nX: 1"
    rows, reasons = parsed(
        [record, b"Lines: x", b"Lines: 1\nno"],
        fields=True,
        columns={"Subject": "string", "Lines": "int8", "Empty": "text"},
    )
    assert rows == [{"Subject": "a:\r\n b", "Lines": 12, "Empty": ""}]
    assert reasons == [
        "column 'Lines' (int8): 'x' is no whole number, in: Lines: x",
        r"line 2 has no name before a colon, and goes on with no other, in: Lines: 1\nno",
    ]
