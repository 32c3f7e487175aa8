"""Which names a scan selects, and which it skips."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from dagflow.storage.location import join
from operators.splitter.scan.scan_roots import Root
from operators.splitter.scan.worker_program import INCOMPLETE_SUFFIXES

_MARKERS = rb"SUCCESS|READY|temporary|spark_metadata|delta_log|metadata|committed_.*|started_.*|staging|COPYING_"
_SUFFIXES = b"|".join(map(re.escape, INCOMPLETE_SUFFIXES))
HIDDEN = re.compile(rb"\..*|_(?:" + _MARKERS + rb")|.*(?:" + _SUFFIXES + rb")", re.DOTALL)
"""Names that a scan skips: dot files; markers and staging directories of Hadoop, Spark and table formats; incomplete
copies. Unlike Hadoop it does not skip every name that begins with an underscore, such as _vendor."""


@dataclass(frozen=True, slots=True)
class Selection:
    """Which names a scan selects.

    Attributes:
        recursive: Whether directories below a scanned directory are scanned too.
        file_pattern: Matches the whole name of each file that is selected; None for all.
        ignore_pattern: Matches the whole name of each file and directory that is skipped; None for none.
    """

    recursive: bool = True
    file_pattern: re.Pattern[str] | None = None
    ignore_pattern: re.Pattern[str] | None = None

    def selects_file(self, name: str) -> bool:
        """Whether a file of that name is selected."""
        return (self.file_pattern is None or self.file_pattern.fullmatch(name) is not None) and self.enters(name)

    def enters(self, name: str) -> bool:
        """Whether a directory of that name is scanned."""
        return self.ignore_pattern is None or self.ignore_pattern.fullmatch(name) is None

    def selects_all_in(self, root: Root, directory: str) -> bool:
        """Whether every file with an ordinary name in a directory is selected; False where a glob decides."""
        base, inner = join(root.lister.url(root.base), ""), join(directory, "")
        if root.kind != "directory" or self.file_pattern is not None or not inner.startswith(base):
            return False
        between = inner[len(base) :].split("/")[:-1]
        if between and not self.recursive:
            return False
        return not any(HIDDEN.fullmatch(os.fsencode(name)) or not self.enters(name) for name in between)
