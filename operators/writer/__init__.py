"""Operators that publish records."""
