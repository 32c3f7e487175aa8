"""Schemas of tables of Iceberg, without a catalog; only the driver imports it, for it needs pyiceberg."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
from pyiceberg.catalog import Catalog
from pyiceberg.partitioning import PartitionField as IcebergField
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import TableProperties, Transaction
from pyiceberg.table.metadata import TableMetadata, new_table_metadata
from pyiceberg.table.name_mapping import MappedField, NameMapping
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER
from pyiceberg.table.update.schema import UpdateSchema
from pyiceberg.transforms import parse_transform

from operators.sink.tables.nested_types import parts_of
from operators.sink.tables.partition_fields import PartitionField


def new_schema(columns: pa.Schema) -> Schema:
    """The schema of a table with some columns.

    Raises:
        ValueError: Iceberg has no table with such columns.
    """
    return assign_fresh_schema_ids(Catalog._convert_schema_if_needed(columns))


def new_spec(schema: Schema, fields: Sequence[PartitionField]) -> PartitionSpec:
    """The partition spec of a table.

    Raises:
        ValueError: The schema lacks a column.
    """
    return PartitionSpec(
        *(
            IcebergField(
                source_id=schema.find_field(field.column).field_id,
                field_id=1000 + number,
                transform=parse_transform(f"{field.transform}[{field.width}]" if field.width else field.transform),
                name=field.name,
            )
            for number, field in enumerate(fields)
        )
    )


def new_table(columns: pa.Schema, fields: Sequence[PartitionField]) -> TableMetadata:
    """The metadata of a table that is not created.

    Raises:
        ValueError: Iceberg has no table with such columns.
    """
    schema = new_schema(columns)
    return new_table_metadata(schema, new_spec(schema, fields), UNSORTED_SORT_ORDER, "", {})


def widen_column(update: UpdateSchema, path: tuple[str, ...], there: pa.DataType, kind: pa.DataType) -> None:
    """Widen a column, or a part of one, to another type, and add the members that it lacks."""
    own = {part.name: part.type for part in parts_of(there)}
    if not own:
        update.update_column(path, new_schema(pa.schema([("column", kind)])).fields[0].field_type)
    for part in (part for part in parts_of(kind) if own.get(part.name, part.type) != part.type):
        step = "element" if pa.types.is_list(kind) else part.name
        widen_column(update, (*path, step), own[part.name], part.type)
    add_columns(update, path, [part for part in parts_of(kind) if part.name not in own])


def add_columns(update: UpdateSchema, path: tuple[str, ...], columns: Sequence[pa.Field]) -> None:
    """Add columns, or members to the column at a path; the table gives their parts their numbers."""
    for field in new_schema(pa.schema(columns)).fields if columns else ():
        update.add_column((*path, field.name), field.field_type)


def with_names(transaction: Transaction) -> Transaction:
    """Map names to columns in files: tasks write them before a column has a number."""
    metadata = transaction.table_metadata
    there, wanted = metadata.name_mapping(), metadata.schema().name_mapping
    if there is not None:
        # Programs that add columns do not all keep the mapping: columns that it lacks would be null to readers.
        wanted = NameMapping(_named(wanted.root, there.root))
    if there is None or wanted != there:
        transaction.set_properties({TableProperties.DEFAULT_NAME_MAPPING: wanted.model_dump_json()})
    return transaction


def _named(columns: list[MappedField], there: list[MappedField]) -> list[MappedField]:
    """The current names of columns, and earlier ones that a table knows and that no other column has."""
    taken = {name for column in columns for name in column.names}
    earlier = {each.field_id: each for each in there}
    found = []
    for column in columns:
        before = earlier.pop(column.field_id, None)
        names = [] if before is None else [name for name in before.names if name not in taken]
        nested = _named(column.fields, [] if before is None else before.fields)
        found.append(column.model_copy(update={"names": [*column.names, *names], "fields": nested}))
    for gone in earlier.values():
        if names := [name for name in gone.names if name not in taken]:
            found.append(gone.model_copy(update={"names": names}))
    return found
