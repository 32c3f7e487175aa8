"""Reads blocks as records: the reader, and the formats that define what a record is."""
