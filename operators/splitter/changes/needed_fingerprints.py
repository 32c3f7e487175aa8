"""Takes the fingerprints that are needed before files are read."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from dagflow.metrics import names
from dagflow.storage.fingerprint import UNKNOWN
from operators.splitter.changes.detection_rules import DetectionRules, has_changed
from operators.splitter.changes.renames.copies import LeftFiles
from operators.splitter.scan.listed_files import InTasks, ListedFiles, prefixes_of, take_fingerprints


class NeededFingerprints:
    """Adds fingerprints to the files of a scan.

    Files that were renamed or truncated before a task could examine them are left out, and another scan finds them:
    without fingerprints they would not be known under another name.

    Args:
        in_tasks: Takes the fingerprints; see take_fingerprints().
        left: Has the files that are left out.
    """

    def __init__(
        self, rules: DetectionRules, counters: Counter[str], in_tasks: InTasks | None, left: LeftFiles
    ) -> None:
        self._rules = rules
        self._counters = counters
        self._in_tasks = in_tasks
        self._left = left

    def complete(self, step: Sequence[ListedFiles]) -> list[ListedFiles]:
        """The files of a step with the fingerprints that they need; none in the place of those that are left out."""
        needing = ((files, self._rows_to_take(files)) for files in step)
        wanted = [prefix for files, rows in needing if len(rows) for prefix in prefixes_of(files.take(rows))]
        prints = iter(take_fingerprints(wanted, self._in_tasks))
        return [self._with_prints(files, prints) for files in step]

    def _rows_to_take(self, files: ListedFiles) -> npt.NDArray[np.intp]:
        """The files to be fingerprinted before they are read; none of object stores, which replace whole objects.

        Blocks of one file are read at different times; the fingerprint shows whether it was rewritten in between.
        """
        if not files.root.is_local or files.fingerprints:
            return np.empty(0, np.intp)
        if self._rules.on_change.needs_fingerprints and (self._rules.may_grow or files.is_noted):
            return np.arange(len(files))
        return np.flatnonzero(files.size_bytes > self._rules.block_size)

    def _with_prints(self, files: ListedFiles, prints: Iterator[int]) -> ListedFiles:
        rows = self._rows_to_take(files)
        if not len(rows):
            return files
        column = np.full(len(files), UNKNOWN)
        column[rows] = list(itertools.islice(prints, len(rows)))
        marked = replace(files, fingerprints=column.tolist())
        # Files that were renamed or truncated before a task could examine them.
        unseen = rows[(column[rows] == UNKNOWN) & (files.size_bytes[rows] > 0)].tolist()
        lost = [row for row in unseen if has_changed(files.keys[row], files.stats[row])]
        for row in lost:
            self._counters[names.FILES_DEFERRED] += not self._left.leave_for_next_scan(files.index_names[row])
        return marked.take(np.setdiff1d(np.arange(len(files)), lost)) if lost else marked
