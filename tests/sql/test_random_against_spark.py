"""Random expressions of all types give what Spark gives in its ANSI mode, on values at the edges."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime
from decimal import Decimal
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from operators.expressions.syntax import ExpressionError
from tests.sql.cases import RefusedRecord, computed, is_same
from tests.sql.random_expressions import SPARKS_DIGITS, RandomExpressions, random_records
from tests.sql.test_against_spark import SETTINGS
from tests.strangers.fuzzing import seeds

pytestmark = [pytest.mark.spark, pytest.mark.nightly]

EXPRESSIONS = 60
"""Expressions of one query."""

_SPARKS = {"sha256(": "sha2(", "strpos(": "instr(", "starts_with(": "startswith(", " text)": " string)"}


_RULES = "org.apache.spark.sql.catalyst.optimizer"
_UNOPTIMIZED = {"spark.sql.optimizer.excludedRules": f"{_RULES}.SimplifyCasts"}
"""Without the rule by which a whole number is not rounded to a real where a double is made of the real."""


@pytest.fixture(scope="module")
def session(spark_context: Any) -> Iterator[Any]:
    """A session in the ANSI mode."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark_context).newSession()
    for name, value in {**SETTINGS, **_UNOPTIMIZED}.items():
        session.conf.set(name, value)
    yield session
    session.catalog.dropTempView("random_records")


def in_spark(text: str) -> str:
    """The expression with the names that Spark has."""
    # sha2 takes the number of bits behind its text.
    text = with_bits(text)
    for name, other in _SPARKS.items():
        text = text.replace(name, other)
    return text


def with_bits(text: str) -> str:
    """The expression with 256 behind the argument of each sha256."""
    start = text.find("sha256(")
    if start < 0:
        return text
    end, depth = start + len("sha256("), 1
    while depth:
        depth += (text[end] == "(") - (text[end] == ")")
        end += 1
    inner = with_bits(text[start + len("sha256(") : end - 1])
    return f"{text[:start]}sha2({inner}, 256){with_bits(text[end:])}"


def accepted(random: Random, records: pa.RecordBatch) -> dict[str, list[Any]]:
    """Expressions whose types fit, with what each gives for the records, where it gives something for one."""
    made = RandomExpressions(random)
    found: dict[str, list[Any]] = {}
    while len(found) < EXPRESSIONS:
        text = made.any(random.choice([1, 1, 2, 3]))
        with suppress(ExpressionError):
            values = computed(text, records)
            if not all(isinstance(value, RefusedRecord) for value in values):
                found[text] = values
    return found


def of_spark(session: Any, ours: dict[str, list[Any]]) -> list[Any]:
    """The columns that Spark gives for expressions, with null where a record is refused here."""
    columns = []
    for number, (text, values) in enumerate(ours.items()):
        kept = [row for row, value in enumerate(values) if not isinstance(value, RefusedRecord)]
        condition = f"id IN ({', '.join(map(str, kept))})" if kept else "false"
        columns.append(f"CASE WHEN {condition} THEN {in_spark(text)} END AS c{number}")
    found = session.sql(f"SELECT id, {', '.join(columns)} FROM random_records").toArrow().sort_by("id")
    return [column.to_pylist() for column in found.columns[1:]]


def differences(session: Any, ours: dict[str, list[Any]]) -> list[Any]:
    """Where Spark gives something else, or nothing."""
    from pyspark.errors import PySparkException

    try:
        theirs = of_spark(session, ours)
    except PySparkException as error:
        if len(ours) == 1:
            # It takes fewer types.
            refuses_types = "DATATYPE_MISMATCH" in str(error)
            return [] if refuses_types else [(*ours, str(error).splitlines()[0])]
        texts = list(ours)
        halves = ({text: ours[text] for text in half} for half in (texts[::2], texts[1::2]))
        return [wrong for half in halves for wrong in differences(session, half)]
    return [
        (text, row, one, other)
        for (text, values), column in zip(ours.items(), theirs, strict=True)
        for row, (one, other) in enumerate(zip(values, column, strict=True))
        if not isinstance(one, RefusedRecord) and not is_near(one, plain(other), text)
    ]


_DOUBLES = re.compile(r"\b(?:[ab][45]\b|exp|power|ln|log10|sqrt|cbrt|sign|real|double)|/")


def is_near(one: Any, other: Any, text: str) -> bool:
    """Whether two values are the same, but for the last digits of doubles, and of what is made of them."""
    if isinstance(one, Decimal) and isinstance(other, Decimal):
        digits = 12 if _DOUBLES.search(text) else SPARKS_DIGITS - 1
        return abs(one - other) <= abs(other).scaleb(-digits)
    return is_same(one, other)


def plain(value: Any) -> Any:
    """A timestamp without its zone, which date_trunc adds in Spark."""
    return value.replace(tzinfo=None) if isinstance(value, datetime) else value


def test_random_expressions_give_what_spark_gives(session: Any) -> None:
    """Where a value is computed, Spark computes the same."""
    for seed in seeds(3):
        random = Random(seed)
        records = random_records(random)
        session.createDataFrame(pa.Table.from_batches([records])).coalesce(1).createOrReplaceTempView("random_records")
        wrong = differences(session, accepted(random, records))
        shown = [
            (
                found,
                {name: records.column(name)[found[1]] for name in set(re.findall(r"\b[ab]\d+\b", found[0]))}
                if len(found) > 2
                else "",
            )
            for found in wrong
        ]
        assert not wrong, (seed, shown)
