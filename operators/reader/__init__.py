"""Blocks to records: the reader, and the formats that say what a record is."""
