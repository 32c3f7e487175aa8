"""Resolves the property `files`: each file, directory or glob becomes the root of a walk."""

from __future__ import annotations

import difflib
import itertools
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Literal

from dagflow.api.regular_expressions import glob_matcher
from dagflow.errors import MissingError, StorageError
from dagflow.frozen import frozen
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, join, redacted
from operators.files.metadata import FileVersion
from operators.splitter.scan.listing import (
    DIRECTORY,
    ENTRIES_AT_ONCE,
    UNFINISHED_ENDS,
    Entries,
    Kind,
    ListedStats,
    Lister,
)
from operators.splitter.scan.local_listing import LocalLister

_MAGIC = re.compile(rb"[*?[]")
_COMPARED_NAMES = 10_000  # names that are compared with a missing one for a hint
_SHOWN_NAMES = 5

Segment = Callable[[str], bool] | None
"""One part of a glob between slashes; None for `**`."""


@frozen
class Root:
    """Where a walk begins.

    Attributes:
        base: The file; or the directory that is walked, without "/" at its end.
        segments: For a glob: the patterns of the names below base, level by level.
        asks_hidden: For each segment, whether it begins like a hidden name, and so includes hidden names.
        index_prefix: The beginning of keys that the index replaces, and the replacement; see Roots.key_prefix.
    """

    named: str
    kind: Literal["file", "directory", "glob"]
    base: bytes
    lister: Lister
    segments: tuple[Segment, ...] = ()
    asks_hidden: tuple[bool, ...] = ()
    index_prefix: tuple[bytes, bytes] = (b"", b"")

    @property
    def is_local(self) -> bool:
        return self.lister.is_local

    @property
    def first_name(self) -> bytes:
        """No path below the root sorts before this one, by their names in the index."""
        return self.index_name(self.base if self.kind == "file" else below(self.base))

    def index_name(self, key: bytes) -> bytes:
        """The key's name in the index: below a named root it begins with the root's name, so that the tree can move."""
        start, mark = self.index_prefix
        return mark + key[len(start) :] if mark else key

    def relative_path(self, key: bytes) -> str:
        """The path below the root, without "/" at its end; the name of a root that is a file."""
        start = self.base.rindex(b"/") + 1 if self.kind == "file" else len(below(self.base))
        return self.lister.url(key[start:].rstrip(b"/"))


def below(directory: bytes) -> bytes:
    """The directory's path with the "/" that every path below it begins with."""
    return directory if directory.endswith(b"/") else directory + b"/"


def find_root(named: str, storage: StorageContext, *, is_literal: bool = False) -> Root:
    """Resolve one location.

    A name that exists is taken literally, whatever characters it holds; only otherwise is it read as a glob,
    in which `*`, `?` and `[...]` stay within one name, `**` stands for any number of directories, and
    `[[]`, `[*]`, `[?]` stand for the characters themselves.

    Args:
        named: A path; a relative one is relative to the working directory.
        is_literal: Whether the name is never a glob.

    Raises:
        MissingError: No file or directory has the name, and it is no glob.
        StorageError: A file is named as a directory, or the directory, or that of the glob, cannot be listed.
    """
    path, lister = _place_of(named, storage)
    kind = lister.kind(path)
    advice = storage.backend(named).files.no_listing(named)
    if advice and (kind == "directory" or named.endswith("/")):
        raise StorageError("it is a directory", url=redacted(named), hint=advice)
    if kind == "file" and named.endswith("/"):
        raise StorageError(
            "it is a file, and its location ends as that of a directory",
            url=redacted(named),
            hint="take the slash off its end",
        )
    if kind is not None:
        return Root(named, kind, path, lister, index_prefix=storage.roots.key_prefix(path))
    if advice:
        if not is_literal and any(sign in named for sign in "*["):
            raise StorageError("no file has this name, and a glob cannot be read", url=redacted(named), hint=advice)
        raise MissingError("no such file", url=redacted(named))
    root = None if is_literal else _glob(named, path, lister, storage)
    if root is None:
        raise MissingError("no such file or directory", url=redacted(named), hint=_closest(path, lister))
    if lister.kind(root.base) != "directory":
        message = f"the glob begins in {redacted(lister.url(root.base))}, which is no directory"
        raise MissingError(message, url=redacted(named), hint=_closest(root.base, lister))
    return root


def find_roots(named: str, storage: StorageContext) -> list[Root]:
    """Resolve one location: in an object store it may be a file, and a directory as well."""
    root = find_root(named, storage)
    if root.kind == "file" and root.lister.is_also_directory(root.base):
        return [root, replace(root, kind="directory")]
    return [root]


def missing_root(named: str, storage: StorageContext) -> Root:
    """The root of a location that does not exist: a glob, or else a directory."""
    path, lister = _place_of(named, storage)
    directory = Root(named, "directory", path, lister, index_prefix=storage.roots.key_prefix(path))
    return _glob(named, path, lister, storage) or directory


def _place_of(named: str, storage: StorageContext) -> tuple[bytes, Lister]:
    lister: Lister = LocalLister() if storage.backend(named).is_local else RemoteLister(storage)
    return os.fsencode(absolute(named)), lister


def _glob(named: str, path: bytes, lister: Lister, storage: StorageContext) -> Root | None:
    if (match := _MAGIC.search(path)) is None:
        return None
    cut = path.rindex(b"/", 0, match.start())
    base = path[:cut] or b"/"
    parts = path[cut + 1 :].split(b"/")
    segments = tuple(None if part == b"**" else glob_matcher(lister.url(part)) for part in parts)
    asks_hidden = tuple(part[:1] in (b".", b"_") for part in parts)
    return Root(named, "glob", base, lister, segments, asks_hidden, storage.roots.key_prefix(base))


def listed_in(root: Root) -> str:
    present = _names_in(below(root.base), root.lister)
    if present is None:
        return ""
    unfinished = next((name for name in present if _is_unfinished_match(root, name)), "")
    if unfinished:
        return f"'{unfinished}', by its end, is not complete yet: name it by its path to read it all the same"
    more = ", …" if len(present) > _SHOWN_NAMES else ""
    return f"it holds {', '.join(present[:_SHOWN_NAMES])}{more}" if present else "it is empty"


def _names_in(directory: bytes, lister: Lister) -> list[str] | None:
    """The first names in a directory; None if it cannot be listed."""
    try:
        names = itertools.chain.from_iterable(entries.names for entries in lister.entries(directory))
        return [lister.url(name) for name in itertools.islice(names, _COMPARED_NAMES)]
    except StorageError:
        return None


def _is_unfinished_match(root: Root, name: str) -> bool:
    """Whether a name where a glob begins matches the whole glob, and is skipped only for its suffix."""
    (*_, last) = root.segments
    is_match = last is not None and len(root.segments) == 1 and last(name)
    return is_match and not name.startswith(".") and os.fsencode(name).endswith(UNFINISHED_ENDS)


def _closest(path: bytes, lister: Lister) -> str:
    parent, _, name = path.rpartition(b"/")
    while parent.count(b"/") > 1 and lister.kind(parent) != "directory":
        parent, _, name = parent.rpartition(b"/")
    if (present := _names_in(below(parent), lister)) is None:
        return ""
    location, missing = redacted(lister.url(parent)) or "/", lister.url(name)
    close = difflib.get_close_matches(missing, [entry.rstrip("/") for entry in present], 1)
    return f"did you mean {join(location, close[0])}?" if close else f"there is no '{missing}' in {location}"


logger = logging.getLogger(__name__)


class RemoteLister(Lister):
    """Lists stores that the storage layer reaches by URL."""

    def __init__(self, storage: StorageContext) -> None:
        self._storage = storage

    def entries(self, directory: bytes) -> Iterator[Entries]:
        names, stats = [], []
        # If the key ends in several slashes, the others are part of the name: in S3 a key may have an empty part.
        is_store = directory.endswith(b"://")
        url = self.url(directory if is_store else directory.removesuffix(b"/"))
        for entry in self._storage.list_directory(url):
            name = os.fsencode(entry.url.rpartition("/")[2])
            names.append(name + b"/" if entry.is_directory else name)
            stats.append(DIRECTORY if entry.is_directory else FileVersion(entry.size_bytes, entry.mtime_ns, entry.etag))
            if len(names) >= ENTRIES_AT_ONCE:
                yield Entries(names, ListedStats.of(stats))
                names, stats = [], []
        yield Entries(names, ListedStats.of(stats))

    def stat(self, path: bytes) -> FileVersion | None:
        if (now := self._storage.find(self.url(path))) is None:
            logger.warning("gone, left out url=%s", redacted(self.url(path)))
        return None if now is None or now.is_directory else FileVersion(now.size_bytes, now.mtime_ns, now.etag)

    def kind(self, path: bytes) -> Kind | None:
        now = self._storage.find(self.url(path))
        return None if now is None else "directory" if now.is_directory else "file"

    def is_also_directory(self, path: bytes) -> bool:
        return self._storage.is_also_directory(self.url(path))

    def identity(self, directory: bytes) -> object:
        """The directory's own name: object stores have no links."""
        return directory
