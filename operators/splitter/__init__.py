"""ChangeDetector: which files there are, and which bytes of them are read in which window."""

from operators.splitter.splitter import FileSplitterBase, FileSplitterInput

__all__ = ["FileSplitterBase", "FileSplitterInput"]
