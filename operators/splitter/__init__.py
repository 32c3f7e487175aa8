"""Splitters: they list files, and decide which bytes of them are read in which window."""

from operators.splitter.block_splitter import FileSplitterBase
from operators.splitter.splitter import FileSplitterInput

__all__ = ["FileSplitterBase", "FileSplitterInput"]
