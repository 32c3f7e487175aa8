"""Operators that keep, drop or change records."""
