"""The columns of streams are known before anything runs, and what does not fit them is a mistake of the app."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import pytest

from dagflow.errors import PlanError
from dagflow.plan.load import load_app
from dagflow.plan.physical import PortRef
from dagflow.plan.stream_columns import stream_columns
from dagflow.spec.problems import Problems
from operators.sink.formats.text_format import RawSink

APP = """\
name: typed
operators:
  splitter: {{class: FileSplitterInput, properties: {{files: in}}}}
  reader: {{class: BlockReader, properties: {{format: {format}}}}}
  step:
    class: {step}
    partition: parallel
  last: {{class: RecordWriter, properties: {{path: out}}, partition: parallel}}
streams:
  blocks: {{from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}}
  rows: {{from: reader.messages, to: step.input}}
  results: {{from: step.output, to: last.input}}
"""
CSV = '{type: csv, columns: {qty: int32, price: "decimal(9, 2)"}}'
CLOSED = "{type: csv, header: false, columns: {qty: int32, name: string}}"
OWN_RAW = f"{__name__}.LogSink"


class LogSink(RawSink):
    """Raw records in files that end with .log."""

    name: ClassVar[str] = "log"
    suffix: ClassVar[str] = ".log"


def columns(folder: Path, format: str, step: str) -> dict[str, str]:
    """The columns behind the step, by name."""
    (folder / "app.yaml").write_text(APP.format(format=format, step=step))
    plan = load_app(folder / "app.yaml")
    problems = Problems()
    known = stream_columns(plan, problems)
    assert not problems
    (source,) = [edge.source for edge in plan.edges if edge.target == PortRef("last", "input")]
    return {field.name: str(field.type) for field in known[source].schema} if source in known else {"?": "?"}


def step(name: str, **properties: Any) -> str:
    return f"{name}\n    properties: {properties}"


KNOWN: list[tuple[str, str, str]] = [
    (
        CSV,
        step("Select", columns={"t": "price * qty", "u": "upper(shop)"}, drop="price"),
        "qty: int32, shop: string, t: decimal128(20, 2), u: string",
    ),
    (CSV, step("Select", keep="qty", rename={"qty": "n"}), "n: int32"),
    (CLOSED, step("Check", expect=["qty > 0"]), "qty: int32, name: string"),
    (CLOSED, step("TopN", by="qty"), "qty: int32, name: string"),
    (
        CLOSED,
        step("Aggregate", by={"k": "length(name)"}, columns={"n": "count(*)", "s": "sum(qty)", "a": "avg(qty)"}),
        "k: int32, n: int64, s: int64, a: double",
    ),
    (
        CSV,
        step("Aggregate", columns={"s": "sum(price)", "m": "max(shop)"}),
        "s: decimal128(19, 2), m: string",
    ),
    ("lines", step("Parse", regex="(?P<a>.) (?P<b>.*)", columns={"b": "date"}), "a: string, b: date32[day]"),
    (CLOSED, step("Parse", regex="(?P<a>.) (?P<b>.*)", column="name"), "qty: int32, a: string, b: string"),
    ("{type: json_lines, columns: {a: int64}}", step("Select", where="a > 1"), "a: int64"),
    ("{type: json_lines, columns: infer}", step("Select", where="nothing > 1"), "?: ?"),
    ("lines", step("RecordFilter", drop={"prefix": "#"}), "record: binary"),
    # A header may name the column.
    (CSV, step("RecordFilter", drop={"prefix": "#"}), "qty: int32, price: decimal128(9, 2)"),
    ("tests.visitors.pairs_format.Pairs", step("RecordFilter", drop={"prefix": "#"}), "record: binary"),
    (CSV, step("CountBy", by="shop"), "shop: string, count: int64"),
    (CLOSED, step("CountBy", by=["name", "qty"]), "name: string, qty: int32, count: int64"),
    ("lines", step("CountBy", by="record"), "record: binary, count: int64"),
    ("{type: json_lines, columns: infer}", step("CountBy", by="shop"), "?: ?"),
]
MISTAKES: list[tuple[str, str, str]] = [
    (CLOSED, step("Select", where="qtty > 0"), "7:28: operator 'step' (Select): there is no column 'qtty'; did you"),
    (CSV, step("Select", columns={"t": "1 + upper(qty)"}), "7:46: operator 'step' (Select): upper() takes text, and"),
    (CSV, step("Select", where="shop > 1"), "operator 'step' (Select): '>' has text beside int; cast one of them"),
    ("lines", step("Select", where="a > 1"), "5:3: operator 'step' (Select): the records are raw and have no"),
    ("lines", step("Aggregate", columns={"n": "count(*)"}), "put a Parse before this operator"),
    (CLOSED, step("Check", expect=["qty > 0", "nam = ''"]), "there is no column 'nam'; did you mean 'name'?"),
    (
        CLOSED,
        step("Check", expect=["unique(nam)"]),
        "'step' (Check): there is no column 'nam'; did you mean",
    ),
    (CLOSED, step("Aggregate", by="nam", columns={"n": "count(*)"}), "there is no column 'nam'; did you mean"),
    (CLOSED, step("Aggregate", columns={"n": "sum(name)"}), "sum() takes numbers, and this is text"),
    (CLOSED, step("Select", drop="nam"), "drop: there is no column 'nam'; did you mean 'name'?"),
    (CLOSED, step("Parse", regex="(?P<a>.)"), "the records have columns already; name the one to be parsed"),
    (CLOSED, step("TopN", by="size"), "the records have no column 'size'; they have qty, name"),
    (
        CLOSED,
        step("RecordFilter", drop={"prefix": "#"}),
        "5:3: operator 'step' (RecordFilter): only raw records, or a column 'record' of text or bytes, can be matched; "
        "there is qty: int32, name: string; use a Select",
    ),
    (
        "{type: csv, header: false, columns: {record: int32}}",
        step("RecordFilter", keep={"regex": "1"}),
        "can be matched; there is record: int32",
    ),
    (CLOSED, step("CountBy", by="size"), "step' (CountBy): the records have no column 'size'; they have qty, name"),
]
ALL_COLUMNS, TABLE = step("Select", where="true"), "TableWriter, properties: {table: 'delta:out'"
SINKS: list[tuple[str, str, str, str]] = [
    (
        CLOSED,
        ALL_COLUMNS,
        "RecordWriter, properties: {path: out, format: raw}",
        "raw writes raw records, not columns (",
    ),
    (
        CLOSED,
        ALL_COLUMNS,
        f"RecordWriter, properties: {{path: out, format: {OWN_RAW}}}",
        "format: log writes raw records, not columns (qty",
    ),
    (
        CLOSED,
        ALL_COLUMNS,
        TABLE + ", upsert_by: nam}",
        "(TableWriter): the records have no column 'nam'; they have qty",
    ),
    (CSV, step("Select", columns={"d": "1e0"}), TABLE + ", upsert_by: d}", "upsert_by: 'd' is double, which is no key"),
    (
        CLOSED,
        ALL_COLUMNS,
        "RecordWriter, properties: {path: out}, partition: {by: nam}",
        "9:67: operator 'last': there is no column 'nam' to partition by; the records have qty, name",
    ),
    (
        CLOSED,
        step("CountBy", by="qty"),
        "RecordWriter, properties: {path: out}, partition: {by: name}",
        "'name' to part",
    ),
]
TAKEN: list[tuple[str, str, str]] = [
    (CSV, ALL_COLUMNS, "RecordWriter, properties: {path: out}, partition: {by: shop}"),
    ("lines", step("RecordFilter", drop={"prefix": "#"}), "RecordWriter, properties: {path: out, format: raw}"),
    (
        "lines",
        step("RecordFilter", drop={"prefix": "#"}),
        f"RecordWriter, properties: {{path: out, format: {OWN_RAW}}}",
    ),
    (CLOSED, ALL_COLUMNS, "RecordWriter, properties: {path: out, format: auto}"),
    (
        "lines",
        step("RecordFilter", drop={"prefix": "#"}),
        "RecordWriter, properties: {path: o}, partition: {by: record}",
    ),
    (CSV, ALL_COLUMNS, TABLE + ", upsert_by: shop}"),
    # A table that is there may have the column.
    (CLOSED, ALL_COLUMNS, TABLE + ", partition_by: day}"),
    ("{type: json_lines, columns: infer}", ALL_COLUMNS, TABLE + ", upsert_by: day}, partition: {by: day}"),
]


@pytest.mark.parametrize(("format", "operator", "wanted"), KNOWN)
def test_columns_follow_from_the_options_of_formats_and_operators(
    tmp_path: Path, format: str, operator: str, wanted: str
) -> None:
    """Where a header may name others, a column without a type is text; what is inferred is not known."""
    found = columns(tmp_path, format, operator)
    assert ", ".join(f"{name}: {kind}" for name, kind in found.items()) == wanted


@pytest.mark.parametrize(("format", "operator", "message"), MISTAKES)
def test_what_does_not_fit_the_columns_is_a_mistake_of_the_app(
    tmp_path: Path, format: str, operator: str, message: str
) -> None:
    """Told at its place inside of an expression, or at the operator."""
    (tmp_path / "app.yaml").write_text(APP.format(format=format, step=operator))
    with pytest.raises(PlanError, match=re.escape(message)):
        load_app(tmp_path / "app.yaml")


def with_last(format: str, operator: str, last: str) -> str:
    """The app with another operator at its end."""
    app = APP.format(format=format, step=operator)
    return app.replace("RecordWriter, properties: {path: out}, partition: parallel", last)


@pytest.mark.parametrize(("format", "operator", "last", "message"), SINKS)
def test_what_a_sink_or_an_exchange_cannot_take_is_a_mistake_too(
    tmp_path: Path, format: str, operator: str, last: str, message: str
) -> None:
    """They declare no columns of their own, and need some all the same."""
    (tmp_path / "app.yaml").write_text(with_last(format, operator, last))
    with pytest.raises(PlanError, match=re.escape(message)):
        load_app(tmp_path / "app.yaml")


@pytest.mark.parametrize(
    ("operator", "last"),
    [
        (step("Select", drop="${A_SECRET}"), "RecordWriter, properties: {path: out}"),
        (step("Select", drop="qty"), 'RecordWriter, properties: {path: out}, partition: {by: "${A_SECRET}", count: 2}'),
    ],
)
def test_a_mistake_does_not_quote_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, operator: str, last: str
) -> None:
    """A name that came from there may be a secret that was put into the wrong place."""
    monkeypatch.setenv("A_SECRET", "hush-hush")
    (tmp_path / "app.yaml").write_text(with_last(CLOSED, operator, last))
    with pytest.raises(PlanError, match=r"\$\{A_SECRET\}") as raised:
        load_app(tmp_path / "app.yaml")
    assert "hush" not in str(raised.value)


@pytest.mark.parametrize(("format", "operator", "last"), TAKEN)
def test_columns_that_may_be_there_are_no_mistake(tmp_path: Path, format: str, operator: str, last: str) -> None:
    """A header may name them, records bring them, or a table have them."""
    (tmp_path / "app.yaml").write_text(with_last(format, operator, last))
    assert "last" in load_app(tmp_path / "app.yaml").operators


def test_streams_that_come_together_are_known_where_they_are_alike(tmp_path: Path) -> None:
    """Else the columns are looked at when the records come."""
    app = APP.format(format=CLOSED, step=step("Select", where="other > 0"))
    app = app.replace("from: reader.messages", "from: [reader.messages, reader.errors]")
    (tmp_path / "app.yaml").write_text(app)
    problems = Problems()
    known = stream_columns(load_app(tmp_path / "app.yaml"), problems)
    assert not problems
    assert PortRef("reader", "messages") in known
    assert PortRef("step", "output") not in known
