"""Refused records: as they leave an operator, and where they lie."""
