"""Named roots: what is remembered of a location below one is its name and the rest, so that a tree can be moved."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Mapping
from typing import Any

from dagflow.errors import StorageError
from dagflow.storage.location import absolute, redacted

MARK = "\0"
"""Stands before a root's name: no path and no URL has this byte."""

ONE_ROOT = "name one of them only: everything below it moves with it"

# For each the location and what stands for it.
_roots: tuple[tuple[str, str], ...] = ()


def use_roots(roots: Mapping[str, str]) -> None:
    """Let this process remember locations below these roots by name.

    Args:
        roots: Locations by name.

    Raises:
        StorageError: One lies in another.
    """
    global _roots
    for inner, outer in nested(roots):
        raise StorageError(
            f"root '{inner}' lies in root '{outer}'", url=redacted(absolute(roots[inner])), hint=ONE_ROOT
        )
    _roots = tuple((url, MARK + name) for url, name in _in_order(roots))


def nested(roots: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names of roots that lie in another one, each with the other's; not all of them, but one where there are any."""
    for (outer, first), (inner, second) in itertools.pairwise(_in_order(roots)):
        if _is_in(inner, outer):
            yield second, first


def _in_order(roots: Mapping[str, str]) -> list[tuple[str, str]]:
    # With a slash behind each, what lies in a root stands right behind it.
    return sorted(((absolute(url), name) for name, url in roots.items()), key=lambda pair: f"{pair[0]}/")


@contextlib.contextmanager
def roots_in_use(roots: Mapping[str, str]) -> Iterator[None]:
    """Use these roots for a while.

    Raises:
        StorageError: One lies in another.
    """
    before = _roots
    use_roots(roots)
    try:
        yield
    finally:
        _restore(before)


def shortened(url: str) -> str:
    """The location with its root's name in the place of the root; as it is where it is in none."""
    for root, mark in _roots:
        if url.startswith(root) and _is_in(url, root):
            return mark + url[len(root) :]
    return url


def expanded(text: str) -> str:
    """The location that shortened() was given, wherever its root is now; as it is where there is no such root."""
    if text.startswith(MARK):
        for root, mark in _roots:
            if text.startswith(mark) and text[len(mark) :][:1] in ("", "/"):
                return root + text[len(mark) :]
    return text


def roots_now() -> dict[str, str]:
    """Where the roots are, by name."""
    return {mark[1:]: root for root, mark in _roots}


def require_located(value: Any) -> None:
    """Refuse JSON values that were expanded, and in which a text still begins with the name of a root.

    Raises:
        StorageError: There is no root of that name now.
    """
    _mapped(value, _located)


def _located(text: str) -> str:
    if text.startswith(MARK):
        name = text[1:].partition("/")[0]
        raise StorageError(
            f"this lies in root '{name}' for the checkpoint, and the app has no root of that name",
            url=text[1:],
            hint=f"name it again, with the place where it is now: attributes: {{roots: {{{name}: …}}}}",
        )
    return text


def root_of(url: str) -> str:
    """The name of the root that a location is in; "" for none."""
    return next((mark[1:] for root, mark in _roots if _is_in(url, root)), "")


def key_prefix(base: bytes) -> tuple[bytes, bytes]:
    """For keys at and below a location: the beginning that is left out, and what stands for it; twice b"" for none.

    Raises:
        StorageError: A root lies below the location, so that some keys are in it and others are not.
    """
    url = os.fsdecode(base)
    for root, mark in _roots:
        if _is_in(url, root):
            return os.fsencode(root), os.fsencode(mark)
        if _is_in(root, url):
            raise StorageError(
                f"root '{mark[1:]}' lies below it",
                url=redacted(url),
                hint="let the root be what is read, or hold it, so that all of it moves together",
            )
    return b"", b""


def shortened_all(value: Any) -> Any:
    """JSON values in which every text that is a location below a root is shortened."""
    return _mapped(value, shortened) if _roots else value


def expanded_all(value: Any) -> Any:
    """What shortened_all() was given, with the roots where they are now."""
    return _mapped(value, expanded) if _roots else value


def _restore(roots: tuple[tuple[str, str], ...]) -> None:
    global _roots
    _roots = roots


def _is_in(url: str, root: str) -> bool:
    return url == root or url.startswith(root if root.endswith("/") else f"{root}/")


def _mapped(value: Any, change: Any) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(each, change) if isinstance(each, (str, list, dict)) else each for each in value]
    if isinstance(value, dict):
        return {change(key): _mapped(each, change) for key, each in value.items()}
    return value
