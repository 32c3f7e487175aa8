"""Named roots: a location below a root is kept as the root's name and the rest, so that a tree can be moved."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from dagflow.errors import StorageError
from dagflow.frozen import frozen
from dagflow.storage.location import absolute, redacted

MARK = "\0"
"""Precedes a root's name: no path and no URL has this byte."""

ONE_ROOT = "name one of them only: everything below it moves with it"


@frozen
class Roots:
    """Named locations, none of them inside another one.

    Attributes:
        pairs: For each root its location, and the mark and name that replace it in persisted data.
    """

    pairs: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(cls, url_by_name: Mapping[str, str]) -> Roots:
        for inner, outer in nested(url_by_name):
            raise StorageError(
                f"root '{inner}' lies in root '{outer}'", url=redacted(absolute(url_by_name[inner])), hint=ONE_ROOT
            )
        return cls(tuple((url, MARK + name) for url, name in _in_order(url_by_name)))

    @property
    def url_by_name(self) -> dict[str, str]:
        return {mark[1:]: root for root, mark in self.pairs}

    def shorten(self, url: str) -> str:
        """The location with its root replaced by the root's name; unchanged if it is in none."""
        for root, mark in self.pairs:
            if url.startswith(root) and _is_in(url, root):
                return mark if url == root else mark + url[len(_above(root)) :]
        return url

    def expand(self, text: str) -> str:
        """The location that was given to shorten(), at the root's present location; unchanged without such a root."""
        if text.startswith(MARK):
            for root, mark in self.pairs:
                rest = text.removeprefix(mark)
                if text.startswith(mark) and rest[:1] in ("", "/"):
                    return _above(root) + rest if rest else root
        return text

    def shorten_all(self, value: Any) -> Any:
        """JSON values in which every location below a root is shortened."""
        return _mapped(value, self.shorten) if self.pairs else value

    def expand_all(self, value: Any) -> Any:
        """The values that were given to shorten_all(), with the roots' present locations."""
        return _mapped(value, self.expand) if self.pairs else value

    def name_of(self, url: str) -> str:
        """The name of the root that a location is in; "" for none."""
        return next((mark[1:] for root, mark in self.pairs if _is_in(url, root)), "")

    def key_prefix(self, base: bytes) -> tuple[bytes, bytes]:
        """For keys at and below a location: the beginning to leave out, and its replacement; b"" twice for none."""
        url = os.fsdecode(base)
        for root, mark in self.pairs:
            if _is_in(url, root):
                return os.fsencode(_above(root)), os.fsencode(mark)
            if _is_in(root, url):
                raise StorageError(
                    f"root '{mark[1:]}' lies below it",
                    url=redacted(url),
                    hint="let the root be the input's location or lie above it, so that all of it moves together",
                )
        return b"", b""


def nested(url_by_name: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Names of roots inside another one, each with the other's; not all of them, but at least one if there are any."""
    for (outer, first), (inner, second) in itertools.pairwise(_in_order(url_by_name)):
        if _is_in(inner, outer):
            yield second, first


def require_located(value: Any) -> None:
    """Refuse expanded JSON values in which a text still begins with the name of a root."""
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


def _in_order(url_by_name: Mapping[str, str]) -> list[tuple[str, str]]:
    # With a slash behind each root, a location in a root sorts right behind it.
    return sorted(((absolute(url), name) for name, url in url_by_name.items()), key=lambda pair: f"{pair[0]}/")


def _is_in(url: str, root: str) -> bool:
    return url == root or url.startswith(root if root.endswith("/") else f"{root}/")


def _above(root: str) -> str:
    """The root without a slash at its end, which `/` has: the rest keeps the slash that ends the name of the root."""
    return root.rstrip("/")


def _mapped(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, list):
        return [_mapped(item, change) if isinstance(item, (str, list, dict)) else item for item in value]
    if isinstance(value, dict):
        return {change(key): _mapped(item, change) for key, item in value.items()}
    return value
