"""Expressions give what Spark gives in its ANSI mode, but where Spark makes a null or a number of what is none."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pyarrow as pa
import pytest

from tests.nightly import by_day
from tests.sql.cases import EXPRESSIONS, TABLE, RefusedRecord, computed, is_same

pytestmark = pytest.mark.spark

SETTINGS = {
    "spark.sql.ansi.enabled": "true",
    "spark.sql.timestampType": "TIMESTAMP_NTZ",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.parser.escapedStringLiterals": "true",
    "spark.sql.ansi.doubleQuotedIdentifiers": "true",
    # Compiling hundreds of expressions takes much longer than computing them for a dozen records.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}

REFUSED = {
    "floor and ceil refuse NaN; Spark gives 0": ["floor(d)", "ceil(d)"],
    "sqrt refuses negative numbers; Spark gives NaN": ["sqrt(e)"],
    "ln and log10 refuse numbers up to 0; Spark gives null": ["ln(e)", "log10(e)", "ln(i)"],
    "NaN and infinity are refused as decimals; Spark gives null": ["cast(d as decimal(10, 2))"],
    "timestamps are of the years 1 to 9999; Spark has more": [
        "ts + interval '1' day > timestamp '2000-01-01 00:00:00'"
    ],
}
"""What is refused here, and not by Spark; each is in the docs."""

OTHER_TYPES = {
    "the difference of two days is a number; Spark gives an interval": ["day - date '1970-01-01'"],
    "date_trunc of a timestamp without a zone has none; Spark gives one with a zone": [
        f"date_trunc('{unit}', ts)" for unit in ("month", "year", "day", "hour", "week", "quarter", "minute", "second")
    ],
}
"""What has another type in Spark; each is in the docs."""


def in_spark(text: str) -> str:
    """The expression with the names that Spark has."""
    return text.replace("sha256(s)", "sha2(s, 256)")


def _listed(differences: dict[str, list[str]]) -> set[str]:
    return {expression for expressions in differences.values() for expression in expressions}


@pytest.fixture(scope="module")
def session(spark_context: Any) -> Iterator[Any]:
    """A session in the ANSI mode that sees the records."""
    from pyspark.sql import SparkSession

    session = SparkSession(spark_context).newSession()
    for name, value in SETTINGS.items():
        session.conf.set(name, value)
    session.createDataFrame(pa.Table.from_batches([TABLE])).coalesce(1).createOrReplaceTempView("records")
    yield session
    session.catalog.dropTempView("records")


def test_expressions_give_what_spark_gives_and_have_its_types(session: Any) -> None:
    """Where a value is computed, it is Spark's; the whole list is one job, by day a quarter of it."""
    ours = {text: computed(text) for text in by_day(120, EXPRESSIONS)}
    columns = []
    for number, (text, values) in enumerate(ours.items()):
        # A record that is refused here would end Spark's job.
        kept = [row for row, value in enumerate(values) if not isinstance(value, RefusedRecord)]
        whole = len(kept) == len(values)
        condition = f"id IN ({', '.join(map(str, kept))})" if kept else "false"
        theirs = in_spark(text)
        columns.append(theirs if whole else f"CASE WHEN {condition} THEN {theirs} END")
        columns[-1] += f" AS c{number}"
    found = session.sql(f"SELECT id, {', '.join(columns)} FROM records").toArrow().sort_by("id")
    wrong = []
    for number, (text, values) in enumerate(ours.items()):
        for row, (one, other) in enumerate(zip(values, found.column(number + 1).to_pylist(), strict=True)):
            if not isinstance(one, RefusedRecord) and text not in _listed(OTHER_TYPES) and not is_same(one, other):
                wrong.append((text, row, one, other))
    assert wrong == []


CHANGES = {
    "Europe/Paris": ["2026-03-29T01:00", "2026-10-25T01:00"],
    "America/Sao_Paulo": ["2018-02-18T02:00", "2018-11-04T03:00"],
    "America/Havana": ["2024-03-10T05:00", "2015-11-01T05:00", "2024-11-03T05:00"],
    "America/St_Johns": ["2006-04-02T03:31", "2006-10-29T02:31"],
    "Australia/Lord_Howe": ["2024-04-06T15:00", "2024-10-05T15:30"],
    "Pacific/Apia": ["2011-12-30T10:00"],
}
"""When the clocks of a zone change, in UTC."""


def test_beginnings_are_those_of_spark_where_clocks_change(session: Any) -> None:
    """In the hours and in the days around; but Spark gives later moments where clocks skip a whole beginning."""
    in_zone = session.newSession()
    wrong = []
    for zone, changes in CHANGES.items():
        in_zone.conf.set("spark.sql.session.timeZone", zone)
        around = [
            int(datetime.fromisoformat(f"{change}Z").timestamp()) + minutes * 60 + second
            for change in changes
            for minutes in (*range(-90, 91, 5), *range(-60 * 60, 60 * 60, 97))
            for second in (-1, 0)
        ]
        moments = pa.RecordBatch.from_pydict({"at": pa.array(around, pa.timestamp("s", zone))})
        units = ("year", "quarter", "month", "week", "day", "hour", "minute", "second")
        columns = ", ".join(f"unix_seconds(date_trunc('{unit}', timestamp_seconds(at)))" for unit in units)
        rows = ", ".join(f"({at})" for at in around)
        found = in_zone.sql(f"SELECT {columns} FROM VALUES {rows} AS moments(at)").collect()
        for number, unit in enumerate(units):
            ours = [int(each.timestamp()) for each in computed(f"date_trunc('{unit}', at)", moments)]
            theirs = [row[number] for row in found]
            wrong += [
                (zone, unit, at, one, other)
                for at, one, other in zip(around, ours, theirs, strict=True)
                if one > at or (one != other and other <= at)
            ]
    assert wrong == []


@pytest.mark.nightly
def test_what_is_refused_spark_refuses_as_well(session: Any) -> None:
    """The first record that is refused fails in Spark, but for what is listed."""
    from pyspark.errors import PySparkException

    given = set()
    for text in EXPRESSIONS:
        refused = [row for row, value in enumerate(computed(text)) if isinstance(value, RefusedRecord)]
        if refused:
            try:
                session.sql(f"SELECT {in_spark(text)} FROM records WHERE id = {refused[0]}").collect()
            except PySparkException:
                continue
            except (ValueError, OverflowError):  # a year that Python has not
                continue
            given.add(text)
    assert given == _listed(REFUSED)


def test_types_are_those_of_spark(session: Any) -> None:
    """Decimals have as many digits, and numbers the same width."""
    from operators.expressions.expression import Expression

    columns = ", ".join(map(in_spark, EXPRESSIONS))
    schema = session.sql(f"SELECT {columns} FROM records LIMIT 0").toArrow().schema
    differing = set()
    for field, text in zip(schema, EXPRESSIONS, strict=True):
        ours = Expression.of(text).bind(TABLE.schema).type
        if ours != field.type and not (pa.types.is_null(ours) or pa.types.is_null(field.type)):
            differing.add(text)
    assert differing == _listed(OTHER_TYPES)
