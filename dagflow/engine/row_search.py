"""Finds the rows of a table for which an expression of dagflow is true."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
from pydantic import ValidationError

from dagflow.api.capabilities import RowCondition
from dagflow.api.columns.json_values import readable_rows
from dagflow.api.context import Counts, OperatorContext
from dagflow.api.records import RecordBatch
from dagflow.errors import DagflowError, OperatorError
from dagflow.execution.chain import Chain
from dagflow.late import compute as pc
from dagflow.plan.physical import PortRef
from dagflow.report.published_rows import PublishedRows
from dagflow.spec.class_lookup import OPERATOR, find_class
from dagflow.storage.pending import PendingFile


def select_of(where: str) -> Any:
    select: Any = find_class("Select", (), OPERATOR)
    try:
        made = select(where=where)
    except ValidationError as error:
        raise DagflowError(f"--where: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from error
    return made


def rows_where(rows: pa.Table, where: str) -> pa.Table:
    """The rows for which an expression is true.

    Raises:
        DagflowError: It cannot be computed, such as where it names a column that is not there.
    """
    kept: list[pa.RecordBatch] = []
    operator = select_of(where)
    chain = Chain({"where": operator}, [], {"where": Counts()}, partition=0)
    chain.connect(PortRef("where", "output"), lambda batch: kept.append(batch.to_arrow()) if len(batch) else None)
    chain.setup("where", OperatorContext(connected=frozenset({"input", "output"})))
    chain.begin_window(1)
    try:
        for batch in rows.to_batches():
            chain.consumer_of(PortRef("where", "input"))(RecordBatch(batch))
        chain.end_window()
    except OperatorError as error:
        raise DagflowError(
            f"--where: {error.__cause__ or error.message}", hint=f"the columns are {', '.join(rows.column_names)}"
        ) from error
    return pa.Table.from_batches(kept, rows.schema) if kept else rows.slice(0, 0)


def may_have(file: PendingFile, condition: RowCondition) -> bool:
    """Whether a data file may have a row for which a condition holds, by the bounds of its numbers."""
    if file.facts is None:
        return True
    bounds = [
        {name: value for name, value in side.items() if isinstance(value, int | float) and not isinstance(value, bool)}
        for side in (file.facts.least, file.facts.greatest)
    ]
    least, greatest = (pa.RecordBatch.from_pylist([side]) for side in bounds)
    return condition.may_hold(least, greatest)


def with_texts(rows: pa.Table) -> pa.Table:
    """The rows with text in place of bytes; lines are called as raw records are, or are the members of JSON."""
    if rows.column_names == ["line"]:
        lines = [line.decode(errors="backslashreplace") for line in rows["line"].to_pylist()]
        try:
            return pa.Table.from_pylist([json.loads(line) for line in lines])
        except (ValueError, AttributeError, pa.ArrowException):
            return pa.table({"record": pa.array(lines, pa.string())})
    for index, field in enumerate(rows.schema):
        if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type):
            texts = [
                None if each is None else each.decode(errors="backslashreplace") for each in rows[index].to_pylist()
            ]
            rows = rows.set_column(index, field.name, pa.array(texts, pa.string()))
    return rows


def equal_rows(rows: PublishedRows, wanted: Sequence[Mapping[str, Any]]) -> list[list[dict[str, Any]]]:
    """For each of some rows, given by values, the rows that have these values."""
    found: list[list[dict[str, Any]]] = [[] for _ in wanted]
    for batch in rows.parts():
        part = with_texts(pa.Table.from_batches([batch]))
        for field in part.schema:
            # What Arrow can tell apart need not become objects of Python.
            known = [each[field.name] for each in wanted if type(each.get(field.name)) is int]
            if len(known) == len(wanted) and pa.array(known).type == field.type:
                part = part.filter(pc.is_in(part[field.name], pa.array(known)))
        for row in readable_rows(part):
            for own, values in zip(found, wanted, strict=True):
                if _equal(values, row):
                    own.append(row)
    return found


def _equal(values: Mapping[str, Any], row: Mapping[str, Any]) -> bool:
    """Whether a row has some values; a partition value is text in one and not in the other."""
    return all(name in row and (row[name] == value or str(row[name]) == str(value)) for name, value in values.items())
