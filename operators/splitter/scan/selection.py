"""Which names a scan takes, and which it passes over."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from dagflow.storage.location import join
from operators.splitter.scan.roots import Root
from operators.splitter.scan.worker_program import INCOMPLETE

MARKERS = rb"SUCCESS|READY|temporary|spark_metadata|delta_log|metadata|committed_.*|started_.*|staging|COPYING_"
HIDDEN = re.compile(rb"\..*|_(?:" + MARKERS + rb")|.*(?:" + b"|".join(map(re.escape, INCOMPLETE)) + rb")", re.DOTALL)
"""Names that a scan passes over: dot files; the markers and staging directories that Hadoop, Spark and table
formats leave; copies that are not complete. Not every name with an underscore, as Hadoop has it: that would lose
directories such as _vendor without a word."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which names a scan takes.

    Attributes:
        recursive: Whether directories below a scanned directory are scanned too.
        file_pattern: Matches the whole name of each file that is taken; None for all.
        ignore_pattern: Matches the whole name of each file and directory that is passed over; None for none.
    """

    recursive: bool = True
    file_pattern: re.Pattern[str] | None = None
    ignore_pattern: re.Pattern[str] | None = None

    def takes_file(self, name: str) -> bool:
        """Whether a file of that name is taken."""
        return (self.file_pattern is None or self.file_pattern.fullmatch(name) is not None) and self.enters(name)

    def enters(self, name: str) -> bool:
        """Whether a directory of that name is scanned."""
        return self.ignore_pattern is None or self.ignore_pattern.fullmatch(name) is None

    def takes_all_in(self, root: Root, directory: str) -> bool:
        """Whether every file with a common name is taken that lies in a directory; of globs that is not known."""
        base, inner = join(root.lister.url(root.base), ""), join(directory, "")
        if root.kind != "directory" or self.file_pattern is not None or not inner.startswith(base):
            return False
        between = inner[len(base) :].split("/")[:-1]
        if between and not self.recursive:
            return False
        return not any(HIDDEN.fullmatch(os.fsencode(name)) or not self.enters(name) for name in between)
