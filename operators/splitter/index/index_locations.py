"""Index locations: the names in the index for files below each location, and whether they still apply."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass

from dagflow.errors import START_OVER, JournalError
from dagflow.storage.location import absolute, redacted
from dagflow.storage.roots import MARK, Roots

_GLOB = re.compile(r"/[^/]*[*?[].*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IndexLocations:
    """The locations in which a splitter looked for files.

    As bytes, because the journal replaces the locations of named roots in text, and these must stay unchanged.

    Attributes:
        roots: Locations of the named roots, by name.
        names: The locations that were scanned, by their names in the index: below a named root by the root's name and
            the rest.
    """

    roots: dict[str, bytes]
    names: list[bytes]

    @classmethod
    def of(cls, locations: Iterable[str], roots: Roots) -> IndexLocations:
        """The current locations of a splitter."""
        names = {os.fsencode(roots.shorten(_base(location))) for location in locations}
        return cls({name: os.fsencode(url) for name, url in roots.url_by_name.items()}, sorted(names))


def require_same_names(before: IndexLocations, locations: Iterable[str], roots: Roots) -> None:
    """Refuse roots that would change the names of known files in the index: all of them would be read again.

    If a root was moved, with all that is below it, its files keep their names.

    Raises:
        JournalError: A scanned location is now in another root, or in none, or in one that begins elsewhere.
    """
    urls = [_base(location) for location in locations]
    earlier = Roots.of({name: os.fsdecode(url) for name, url in before.roots.items()})
    known = list(map(os.fsdecode, before.names))
    names = [earlier.shorten(url) for url in urls]
    for url, was, now in zip(urls, names, map(roots.shorten, urls), strict=True):
        if was != now and any(_overlap(was, name) for name in known):
            raise JournalError(
                f"files here are remembered {_described(was)}, and would be looked for {_described(now)}: "
                "all of them would be read again",
                url=redacted(url),
                hint=f"let attributes: {{roots: …}} be as before, or {START_OVER}; a root is named before the "
                "first run, and its place changes when its files have moved",
            )


def _base(location: str) -> str:
    return _GLOB.sub("", absolute(location)) or "/"


def _overlap(first: str, second: str) -> bool:
    short, long = sorted((first.rstrip("/"), second.rstrip("/")), key=len)
    return long == short or long.startswith(f"{short}/")


def _described(name: str) -> str:
    if not name.startswith(MARK):
        return "by their paths"
    root, _, rest = name[1:].partition("/")
    return f"by root '{root}'" + (f" and /{rest}" if rest else "")
