"""Splitters: they list files, and decide which bytes of them are read in which window."""

from operators.splitter.named_files import FileSplitterBase
from operators.splitter.splitter import FileSplitterInput

__all__ = ["FileSplitterBase", "FileSplitterInput"]
