"""File patterns, which choose among the files that windows have read."""

from __future__ import annotations

from collections.abc import Callable

from dagflow.api.regular_expressions import glob_matcher
from dagflow.storage.location import absolute, redacted


def matcher_of(pattern: str) -> Callable[[str], bool]:
    """A function that says whether a pattern matches the whole of a location.

    Args:
        pattern: A location in which `*`, `?` and `[...]` stand for any characters, slashes too. It is matched both as
            written, so that `*` stands for the beginning of any location, and relative to the working directory.
    """
    whole = redacted(absolute(pattern))
    matchers = [glob_matcher(each) for each in {redacted(pattern), whole}]

    def matches(url: str) -> bool:
        shown = redacted(url)
        return shown == whole or any(is_match(shown) for is_match in matchers)

    return matches
