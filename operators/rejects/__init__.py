"""Refused records: how an operator handles them, and how many are too many."""
