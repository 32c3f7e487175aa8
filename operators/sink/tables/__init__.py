"""Kinds of tables: they map columns of records to those of a table, and windows to its transactions."""

TABLE_KINDS = {
    "delta:PATH": "operators.sink.tables.delta_table.DeltaTable",
    "iceberg:NAMESPACE.NAME": "operators.sink.tables.iceberg_table.IcebergTable",
    "parquet:PATH": "operators.sink.tables.parquet_dataset.ParquetDataset",
    "duckdb:FILE#TABLE": "operators.sink.tables.sql_table.DuckdbFileTable",
    "postgres:SCHEMA.TABLE": "operators.sink.tables.sql_table.PostgresTable",
    "sqlite:FILE#TABLE": "operators.sink.tables.sql_table.SqliteFileTable",
}
"""The classes of the kinds of tables, by what YAML gives. One more is a file in this package and a line here."""
