"""Columns of records as a table, or a file, holds them: types, names, and values that have no place there."""
