"""Kinds of tables: how the columns of records become those of a table, and windows its transactions."""
