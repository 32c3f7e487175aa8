"""Locations: a local path, or a URL that fsspec understands.

A local location is an absolute path without a scheme. A member of an archive is its path behind the archive's, with
`!` between them. Paths are text in which any byte but NUL may occur: bytes that
are not UTF-8 are surrogate escapes, see os.fsdecode.
"""

from __future__ import annotations

import hashlib
import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from dagflow.errors import StorageError
from dagflow.frozen import frozen

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*(::|://)")
# In Azure's URLs a container takes the place of the user.
_USER_INFO = re.compile(r"(\b(?:abfss?|wasbs?)://[^/:@]*@)|://[^/]*@")
_PASSWORD = re.compile(r"([\w+.-]*)://[^/@]*:[^/@]*@")
# For any link of a chain such as `zip://a::https://b?c`; the query reaches to the end, as it may contain `::` itself.
_QUERY = re.compile(r"(?:^|(?<=::))([\w+.-]*https?)(://[^?]*)(\?.*)$", re.DOTALL | re.IGNORECASE)
# In a text that contains a URL, the password of a login may contain characters that end a login elsewhere.
_LOGIN = re.compile(r"://[^/\s@]*:[\s\S]*@|(?<!abfs)(?<!abfss)(?<!wasb)(?<!wasbs)://[^/\s]*@")
_SPACE = re.compile(r"(\s+)")
_SIGNED = re.compile(r"[?&](x-(amz|goog)-\w+|sig|signature|\w*token|\w*key|\w*keyid|password|secret)=", re.IGNORECASE)
_FILE_SCHEME = "file://"
ARCHIVE_NAME = r"\.(?:zip|tar|tgz|tbz2?|txz|tzst|tar\.(?:gz|bz2|xz|zst))"
"""A regular expression for the ends of the names of archives, in lower case."""

_MEMBER = re.compile(f"(.+{ARCHIVE_NAME})!(.*)", re.DOTALL | re.IGNORECASE)
_ARCHIVE = re.compile(f".+{ARCHIVE_NAME}", re.DOTALL | re.IGNORECASE)


def is_local(url: str) -> bool:
    """Whether a location is on a file system of this machine: a plain path, or file://."""
    return url.startswith(_FILE_SCHEME) or _SCHEME.match(url) is None


def scheme_of(url: str) -> str:
    """The URL scheme of a location, such as `s3` or `simplecache::s3`; "" for one on a file system of this machine."""
    return "" if is_local(url) else url.partition("://")[0]


def archive_of(url: str) -> tuple[str, str] | None:
    """The location of the archive that has a file, and the path in it: `in/a.zip!b/c` is `b/c` of `in/a.zip`."""
    match = _MEMBER.fullmatch(url) if "!" in url else None
    return None if match is None else (match[1], match[2])


def is_archive_name(name: str) -> bool:
    """Whether a location or a name is that of an archive of files, by its end."""
    return _ARCHIVE.fullmatch(name) is not None


def absolute(url: str) -> str:
    """The canonical form of a location: no file://, no relative path, no slash at the end, one at the beginning.

    A relative path is relative to the working directory; `..` is resolved textually, without following links.
    """
    if is_local(url):
        path = os.path.abspath(url.removeprefix(_FILE_SCHEME))
        # abspath() keeps two slashes, which POSIX lets have another meaning. On Linux and macOS they have none.
        return path[1:] if path.startswith("//") else path
    stripped = url.rstrip("/")
    return url if stripped.endswith(":") else stripped


def join(url: str, *names: str) -> str:
    """A location below url; each name may itself have several parts."""
    for name in names:
        url = f"{url}{name}" if url.endswith("/") else f"{url}/{name}"
    return url


def parent(url: str) -> str:
    """The location of the directory that contains url."""
    head, _, _ = url.rpartition("/")
    return f"{head}/" if not head or head.endswith(":/") else head


def name_of(url: str) -> str:
    """The last part of a location."""
    return url.rpartition("/")[2]


def moved_with(url: str, was: str, now: str) -> str:
    """The location that a relative path had in an earlier working directory; url itself if it is remote.

    Args:
        url: The absolute location that the path has in the present working directory.
    """
    return os.path.normpath(os.path.join(was, os.path.relpath(url, now))) if is_local(url) else url


def relocated(url: str, directory: str) -> str:
    """The location below a directory that replaces a location: its path from the working directory, or in full."""
    if not is_local(url):
        return join(directory, url.replace("://", "/").rstrip("/"))
    path, here = absolute(url), f"{os.getcwd()}/"
    return join(directory, path.removeprefix(here).strip("/"))


def redacted(url: str) -> str:
    """The location without secrets: no user, no password, no signed query."""
    if is_local(url):
        return url
    without_users = _USER_INFO.sub(lambda match: match[1] or "://***@", url)
    return _QUERY.sub(r"\1\2?***", without_users)


def as_text(url: str) -> str:
    """The location without secrets, as tables can hold it: with escapes for bytes that are not UTF-8."""
    return redacted(url).encode("utf-8", "surrogateescape").decode("utf-8", "backslashreplace")


def redacted_within(text: str) -> str:
    """A text whose URLs are shown without logins and queries."""
    before, at, after = text.rpartition("@")
    shown = _LOGIN.sub("://***@", before + at) + after
    return "".join(map(_without_query, _SPACE.split(shown)))


def _without_query(word: str) -> str:
    url, mark, _ = word.partition("?")
    return f"{url}?***" if mark and re.search("https?://", url, re.IGNORECASE) else word


def require_no_credentials(url: str) -> None:
    """Refuse a remote location that contains a password or a signature in any link of its chain.

    Locations are journaled and shown.
    """
    if is_local(url):
        return
    query = _QUERY.search(url)
    credential = _PASSWORD.search(url) or (query if query and _SIGNED.search(query[3]) else None)
    if credential:
        raise StorageError(
            "the location holds a credential, and locations are journaled and shown",
            url=redacted(url),
            hint="take it out, and give it as an option in the app's attributes: "
            f"storage: {{{credential[1]}: {{...: ${{NAME}}}}}}",
        )


NO_VALUE = "__HIVE_DEFAULT_PARTITION__"
"""The text for null."""

NAME_BYTES = 255
"""The longest name of a directory, in bytes, on most file systems."""

# Spark's list, and NUL, which Spark reads so but cannot write. Letters of all scripts and blanks stay: Spark reads an
# escape as a character, not as a byte of UTF-8, and DuckDB and polars take the names of columns as they are.
_ESCAPED = re.compile(r"[\x00-\x1f\x7f\"#%'*/:=?\\\[\]^{]")


def escaped(text: str) -> str:
    """A text without the characters that such names have as escapes."""
    return _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", text)


def partition_name(column: str, value: str | None) -> str:
    """The name of the directory of a value; an empty text is null there."""
    return f"{escaped(column)}={escaped(value) if value else NO_VALUE}"


def column_of(directory: str) -> tuple[str, str | None] | None:
    """The column and the value of a directory; None where its name gives none.

    Escapes of bytes of UTF-8, as other programs write them, are read as well.
    """
    column, equals, value = directory.partition("=")
    return (_plain(column), None if value == NO_VALUE else _plain(value)) if equals and column else None


def _plain(text: str) -> str:
    try:
        return unquote(text, errors="strict")
    except UnicodeDecodeError:
        return text  # its percent signs are no escapes


def shortened(name: str, text: bytes, room: int = NAME_BYTES) -> str:
    """A name of at most `room` bytes, with a mark of the text that it is for at its end.

    Two texts of one name, or of one beginning, stay apart.
    """
    mark = f"-{hashlib.sha256(text).hexdigest()[:16]}"
    # Neither a letter nor an escape is cut.
    head = name.encode()[: room - len(mark)].decode(errors="ignore")
    return re.sub("%[0-9A-F]?$", "", head) + mark


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
