"""The tables that queries join with."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagflow.api.properties import Limit, Location, Size


class SqlTable(BaseModel):
    """A table that a query joins with; its properties mean the same as for Enrich."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    table: Annotated[Location, Field(description="csv:PATH, parquet:PATH, delta:PATH or iceberg:NAMESPACE.NAME")]
    duplicates: Annotated[
        Literal["fail", "reject", "all"],
        Field(description="a key that several rows have: refuse the table, refuse such records, or give all rows"),
    ] = "fail"
    csv: Annotated[dict[str, Any], Field(description="options of the format csv")] = {}  # copied
    catalog: Annotated[dict[str, Any], Field(description="catalog of an iceberg table")] = {}
    max_size: Annotated[Size, Limit(), Field(ge=1, description="maximum memory of the columns")] = 256 << 20
