"""Explains whether a scan would take a file, and which rule decides, with the rules of the scan itself."""

from __future__ import annotations

import operator
import os
from collections import Counter
from collections.abc import Sequence

from dagflow.errors import MissingError
from dagflow.storage.context import StorageContext
from dagflow.storage.location import archive_of, redacted
from operators.files.metadata import FileVersion
from operators.splitter.changes.detection_rules import CompletenessRules
from operators.splitter.scan.listed_files import ListedFiles
from operators.splitter.scan.scan_roots import Root, below, find_roots
from operators.splitter.scan.selection import HIDDEN, NameFilter, Selection


class InputExplanation:
    """Applies the rules of one splitter to one file."""

    def __init__(
        self,
        files: Sequence[str],
        selection: Selection,
        completeness: CompletenessRules,
        storage: StorageContext,
        now_millis: int,
    ) -> None:
        self._files = files
        self._selection = selection
        self._completeness = completeness
        self._storage = storage
        self._now_millis = now_millis

    def selects(self, url: str) -> bool:
        """Whether a location takes the name of a file, which need not exist."""
        return any(isinstance(self._root_of(named, os.fsencode(url)), Root) for named in self._files)

    def explain(self, url: str) -> tuple[bool, str]:
        """Whether a scan now would take a file, and why."""
        reasons = []
        for named in self._files:
            root = self._root_of(named, os.fsencode(url))
            reason = self._why_not_now(root, os.fsencode(url)) if isinstance(root, Root) else root
            if not reason:
                return True, f"It is selected by files: {named}; a scan takes it unless this version was taken before."
            reasons.append(reason)
        # The reason of the location that comes closest to the file is the most helpful one.
        return False, f"It is not taken: {max(reasons, key=operator.itemgetter(0))[1]}."

    def _root_of(self, named: str, key: bytes) -> Root | tuple[int, str]:
        """The root of a location that takes the name of a file; or how many levels it matches, and what excludes it."""
        try:
            roots = find_roots(named, self._storage)
        except MissingError:
            return 0, f"files: {named} does not exist"
        root = roots[0] if key == roots[0].base else roots[-1]
        inside = archive_of(root.lister.url(key)) if self._selection.archives != "whole" else None
        if inside is not None and key != root.base:
            archive = self._root_of(named, os.fsencode(inside[0]))
            if not isinstance(archive, Root) or self._selection.selects_member(inside[1]):
                return archive
            why = f"file_pattern, ignore_pattern or recursive leave the member {inside[1]!r} out, or it is hidden"
            return len(key), why
        if root.kind == "file" and key != root.base:
            return 0, f"files: {named} names another file"
        if root.kind != "file":
            if not key.startswith(below(root.base)):
                place = redacted(root.lister.url(root.base))
                return 0, f"it does not lie below {place}, where files: {named} begins{self._namesake(root, key)}"
            if refusal := self._refusal(root, key[len(below(root.base)) :]):
                return refusal
        return root

    def _namesake(self, root: Root, key: bytes) -> str:
        """A file of the same name in a location: a name without its directory means that one."""
        url = root.lister.url(below(root.base) + key.rpartition(b"/")[2])
        return f"; {redacted(url)} does: ask for that" if self._storage.find(url) is not None else ""

    def _refusal(self, root: Root, path: bytes) -> tuple[int, str] | None:
        """The part of a file's path that is skipped, and the reason."""
        names = NameFilter(root, self._selection, Counter())
        states, parts = names.first, path.split(b"/")
        for depth, part in enumerate(parts, 1):
            is_directory = depth < len(parts)
            states, is_skipped = names.reached(states, part + b"/" if is_directory else part)
            if not states or is_skipped:
                return depth, self._reason(root, root.lister.url(part), part, is_directory=is_directory)
        if not names.is_selected(states):
            return len(parts), f"files: {root.named} is a glob that does not match it"
        return None

    def _reason(self, root: Root, name: str, part: bytes, *, is_directory: bool) -> str:
        what = f"the directory {name!r}" if is_directory else f"the name {name!r}"
        if HIDDEN.fullmatch(part):
            return f"scans skip {what}, as hidden files, markers, unfinished copies and editors' own files"
        if not self._selection.enters(name):
            return f"ignore_pattern '{self._selection.ignore_pattern}' matches {what}"
        if not is_directory and not self._selection.selects_file(name):
            return f"file_pattern '{self._selection.file_pattern}' does not match {what}"
        if is_directory and not self._selection.recursive and root.kind == "directory":
            return f"{what} is not entered, because of recursive: false"
        return f"files: {root.named} is a glob that does not match {what}"

    def _why_not_now(self, root: Root, key: bytes) -> tuple[int, str] | None:
        """Why a file with a selected name is not taken: it does not exist, or is not complete."""
        depth = 1 + key.count(b"/")
        url = root.lister.url(key)
        if (now := self._storage.find(url)) is None:
            return depth, "its name would be selected, and there is no such file now"
        if now.is_directory:
            return depth, "it is a directory, whose files are taken one by one"
        if root.is_local and os.path.islink(key):
            return (depth, "it is a symbolic link: its target is read once, under its own name if that is in the input")
        stat = FileVersion(now.size_bytes, now.mtime_ns, now.etag, now.file_id)
        files = ListedFiles.single(root, key, stat)
        if self._completeness.is_marker(files, 0):
            return depth, f"it is a marker of done_marker {self._completeness.done_marker!r}, which is not read itself"
        if not self._completeness.is_complete(files, 0, self._now_millis):
            return depth, (
                "it does not count as complete yet, by settle_millis "
                f"{self._completeness.min_age_millis} and done_marker {self._completeness.done_marker!r}"
            )
        return None
