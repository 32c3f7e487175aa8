"""The schema of a DataFrame of files, and the rows that fit it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import StructType

from dagflow.errors import PlanError, Problem
from dagflow.spark.read_plan import columns_of, declared_columns
from dagflow.spark.source_options import READER, SourceOptions
from dagflow.spark.spark_rows import ADDED, RowShape
from dagflow.suggestions import did_you_mean


def schema_of(given: Mapping[str, Any]) -> StructType:
    """The schema of the rows that options ask for."""
    return from_arrow_schema(columns_of(SourceOptions.of(given)), prefer_timestamp_ntz=True)


def shape_of(given: Mapping[str, Any], schema: StructType, *, is_whole: bool) -> RowShape:
    """The rows of a schema.

    Raises:
        PlanError: The schema names a column that records do not have.
    """
    options = SourceOptions.of(given)
    app = options.app()
    declared = declared_columns(app)
    if declared is not None and declared.others is None:
        known = declared.schema.names
        for name in schema.names:
            if name not in known and name not in ADDED:
                hint = did_you_mean(name, [*known, *ADDED]) or ";"
                raise PlanError([Problem("", 0, 0, f"there is no column '{name}'{hint} it has {', '.join(known)}")])
    found = getattr(getattr(app.operators[READER].operator, "format", None), "columns", None)
    return RowShape(
        arrow_schema(schema),
        is_whole=is_whole,
        may_lack=found in ("infer", "as_found"),
        has_rejects=options.on_bad_record == "column",
    )


def arrow_schema(schema: StructType) -> pa.Schema:
    """The schema in which Spark takes rows from Python."""
    try:
        return to_arrow_schema(schema, timezone="UTC")
    except TypeError:  # before 4.1
        return to_arrow_schema(schema)
