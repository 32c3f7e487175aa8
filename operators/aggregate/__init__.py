"""Operators that make one result of all records of a window."""
