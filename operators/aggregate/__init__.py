"""Operators that give one result for all records of a window."""
