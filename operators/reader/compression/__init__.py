"""Compressed files, read as what is compressed in them."""
