"""What the property `files` names: files, directories and globs, each made into a root for a walk."""

from __future__ import annotations

import difflib
import fnmatch
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from dagflow.errors import MissingError
from operators.splitter.listing import Lister, LocalLister

_MAGIC = re.compile(rb"[*?[]")

Segment = re.Pattern[bytes] | None
"""One part of a glob between slashes; None stands for `**`."""


@dataclass(frozen=True, slots=True)
class Root:
    """Where a walk begins.

    Attributes:
        named: As the user wrote it.
        kind: What it is.
        base: The file; or the directory that is walked, without a slash at its end.
        segments: Of a glob: what the names below base must match, level by level.
        asks_hidden: For each segment, whether it begins as a hidden name does, and so takes in hidden names.
        lister: How the store is listed.
    """

    named: str
    kind: Literal["file", "directory", "glob"]
    base: bytes
    lister: Lister
    segments: tuple[Segment, ...] = ()
    asks_hidden: tuple[bool, ...] = ()

    @property
    def first_key(self) -> bytes:
        """No path below the root sorts before this."""
        return self.base if self.kind == "file" else below(self.base)


def below(directory: bytes) -> bytes:
    """The directory's path with the slash that every path below it begins with."""
    return directory if directory.endswith(b"/") else directory + b"/"


def find_root(named: str, *, is_literal: bool = False) -> Root:
    """Say what one location is.

    A name that exists is taken literally, whatever characters it holds; only then is it read as a glob,
    in which `*`, `?` and `[...]` stay within one name, `**` stands for any number of directories, and
    `[[]`, `[*]`, `[?]` stand for the characters themselves.

    Args:
        named: A path; a relative one is relative to the working directory.
        is_literal: Whether the name is never a glob.

    Raises:
        MissingError: There is no such file or directory, and the name is not a glob.
    """
    path = os.fsencode(os.path.abspath(named.removeprefix("file://")))
    lister = LocalLister()
    if os.path.isdir(path):
        return Root(named, "directory", path, lister)
    if os.path.lexists(path):
        return Root(named, "file", path, lister)
    match = _MAGIC.search(path)
    if match is None or is_literal:
        raise MissingError("no such file or directory", url=named, hint=_nearest(path))
    cut = path.rindex(b"/", 0, match.start())
    base = path[:cut] or b"/"
    parts = path[cut + 1 :].split(b"/")
    if not os.path.isdir(base):
        raise MissingError(f"the glob begins in {os.fsdecode(base)}, which is no directory", url=named,
                           hint=_nearest(base))
    segments = tuple(None if part == b"**" else re.compile(_translated(part)) for part in parts)
    return Root(named, "glob", base, lister, segments, tuple(part[:1] in (b".", b"_") for part in parts))


def _translated(part: bytes) -> bytes:
    # latin-1 gives each byte a character of its own, so that names that are no text match as well.
    return fnmatch.translate(part.decode("latin-1")).encode("latin-1")


def _nearest(path: bytes) -> str:
    """A hint that names what is there instead of a path that is not."""
    text = os.fsdecode(path)
    parent, name = os.path.split(text)
    while parent not in ("/", "") and not os.path.isdir(parent):
        parent, name = os.path.split(parent)
    try:
        names: Sequence[str] = os.listdir(parent)
    except OSError:
        return ""
    close = difflib.get_close_matches(name, names, 1)
    return f"did you mean {os.path.join(parent, close[0])}?" if close else f"{parent} holds no {name}"
