"""Refused records: what an operator makes of them, and how many are too many."""
