"""What a splitter's index calls the files below each location, and whether it still would."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from dagflow.errors import JournalError
from dagflow.storage.location import absolute, redacted
from dagflow.storage.roots import MARK, roots_in_use, roots_now, shortened

_GLOB = re.compile(r"/[^/]*[*?[].*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class IndexLocations:
    """Where files were looked for.

    Attributes:
        roots: Where the named roots were, by name.
        names: What was looked through, as the index names it: in a root by the root's name and the rest.
    """

    roots: dict[str, str]
    names: Sequence[str]

    @classmethod
    def of(cls, locations: Iterable[str]) -> IndexLocations:
        """Those of a splitter as it is now."""
        return cls(roots_now(), sorted({shortened(_base(location)) for location in locations}))


def require_same_names(before: IndexLocations, locations: Iterable[str]) -> None:
    """Refuse roots under which files that were taken have other names than in the index: all would be read again.

    Where a root was moved, with all that lies below it, its files keep their names.

    Raises:
        JournalError: A location that was looked through is in another root now, or in none, or in one that begins
            elsewhere.
    """
    urls = [_base(location) for location in locations]
    with roots_in_use(before.roots):
        names = [shortened(url) for url in urls]
    for url, was, now in zip(urls, names, map(shortened, urls), strict=True):
        if was != now and any(_overlap(was, known) for known in before.names):
            raise JournalError(
                f"files here are remembered {_described(was)}, and would be looked for {_described(now)}: "
                "all of them would be read again",
                url=redacted(url),
                hint="let attributes: {roots: …} be as before, or start over with --fresh; a root is named before "
                "the first run, and its place changes when its files have moved",
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
