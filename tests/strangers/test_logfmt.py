"""Pairs of key and value as logfmt writes them: what a message says never becomes a value of another key."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest

from dagflow.api.records import LINE_FEED, RecordBatch
from operators.transform.parse import Parse
from tests.strangers.fuzzing import seeds


def parsed(records: list[str], keys: list[str], **options: Any) -> tuple[list[dict[str, Any]], list[str]]:
    """The values of the keys in each record, and why others were refused."""
    operator = Parse(key_value={"keys": keys, **options})
    batches: list[RecordBatch] = []
    refused: list[RecordBatch] = []
    operator.output.connect(batches.append)
    operator.errors.connect(refused.append)
    operator.compute(RecordBatch.from_records([record.encode() for record in records], LINE_FEED))
    rows = [row for batch in batches for row in batch.to_arrow().to_pylist()]
    return rows, [json.loads(each)["reason"] for batch in refused for each in batch.to_pylist()]


def test_who_writes_into_the_message_does_not_choose_the_level() -> None:
    """An escaped quote does not end the message."""
    rows, reasons = parsed([r'msg="x \" level=fatal \" y" level=info'], ["level", "msg"])
    assert (rows, reasons) == ([{"level": "info", "msg": 'x " level=fatal " y'}], [])


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        (r"a\\", "a\\"),
        (r"a\nb\tc", "a\nb\tc"),
        (r"\u00e9\ud83d\ude00", "é😀"),
        (r"\ud83d", "\ufffd"),
        (r"C:\dir\q", r"C:\dir\q"),
        (r"\\\"", '\\"'),
        ("", ""),
    ],
)
def test_escapes_mean_what_they_mean_in_logfmt(written: str, meant: str) -> None:
    """A backslash before another character stays, and so does one outside of quotes."""
    assert parsed([rf'm="{written}" p=C:\new'], ["m", "p"]) == ([{"m": meant, "p": r"C:\new"}], [])


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (
            'é=1 msg="x"level=fatal level=info',
            "the quote at byte 11 closes the value that the quote at byte 9 opens, and text follows it",
        ),
        (r'msg="C:\" level=info', "the quote at byte 4 is never closed"),
        ('msg="x level=info', "the quote at byte 4 is never closed"),
        ('level=debug msg="a b="c"', "the quote at byte 21 closes the value that the quote at byte 16 opens"),
    ],
)
def test_a_quote_that_does_not_end_a_pair_refuses_the_record(record: str, reason: str) -> None:
    """With its place: any reading of the rest would be a guess."""
    rows, [found] = parsed([record, "level=ok"], ["level"])
    assert rows == [{"level": "ok"}]
    assert found.startswith(reason)


def test_a_backslash_that_separates_escapes_nothing() -> None:
    """It cannot do both."""
    assert parsed(['a="x\\y"\\b=1'], ["a", "b"], separator="\\") == ([{"a": "x\\y", "b": "1"}], [])


MEANT = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f", '"': '"', "\\": "\\", "/": "/"}
PAIRS = ["SEP", 'SEPaASSIGN"', 'SEPbASSIGN"', "aASSIGN", "bASSIGN", "cASSIGN"]
PIECES = [*PAIRS, '"', '"SEP', "\\", '\\"', "x", "é", "n"]


def pairs_of(text: str, separator: str, assignment: str) -> dict[str, str] | None:
    """The first value of each key, character by character; None where a quote does not end its pair."""
    found: dict[str, str] = {}
    escape = "\\" if "\\" not in separator + assignment else ""
    at = 0
    while True:
        key_end = at
        while key_end < len(text) and text[key_end] != separator and not text.startswith(assignment, key_end):
            key_end += 1
        key, at, value = text[at:key_end], key_end, ""
        if text.startswith(assignment, at):
            at += len(assignment)
            if text[at : at + 1] == '"':
                at += 1
                while at < len(text) and text[at] != '"':
                    if text[at] == escape:
                        following = text[at + 1 : at + 2]
                        value += MEANT.get(following, escape + following)
                        at += 1
                    else:
                        value += text[at]
                    at += 1
                at += 1
                if at > len(text) or (at < len(text) and text[at] != separator):
                    return None
            else:
                while at < len(text) and text[at] != separator:
                    value += text[at]
                    at += 1
            found.setdefault(key, value)
        if at >= len(text):
            return found
        at += 1


def test_fuzzed_pairs_are_read_as_from_left_to_right() -> None:
    """Values and refused records are those of the reference, whatever stands beside a record in its batch."""
    for seed in seeds(20):
        dice = random.Random(seed)
        separator, assignment = dice.choice([" ", " ", ";", "§", "\\"]), dice.choice(["=", "=", "::", "=>"])
        texts = ["".join(dice.choices(PIECES, k=dice.randint(1, 14))) for _ in range(dice.randint(1, 12))]
        records = [text.replace("SEP", separator).replace("ASSIGN", assignment) for text in texts]
        expected = [pairs_of(record, separator, assignment) or {} for record in records]
        rows, reasons = parsed(records, ["a", "b"], separator=separator, assignment=assignment)
        there = [{key: pairs.get(key) for key in "ab"} for pairs in expected if pairs.keys() & {"a", "b"}]
        assert rows == there, (seed, separator, assignment, records)
        assert len(reasons) == len(records) - len(rows)
        broken = [record for record in records if pairs_of(record, separator, assignment) is None]
        assert sum("quote" in reason.partition(", in: ")[0] for reason in reasons) == len(broken), (seed, records)
