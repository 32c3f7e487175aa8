"""Expressions of SQL over the columns of records: parsed, checked against a schema, computed with Arrow."""
