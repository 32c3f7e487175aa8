"""Kinds of tables: they map columns of records to those of a table, and windows to its transactions."""
