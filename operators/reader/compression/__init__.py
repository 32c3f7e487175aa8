"""Reads the content of compressed files."""
