"""Operators that remember keys from one window to the next."""
