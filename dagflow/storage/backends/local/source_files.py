"""Removes source files of a local disk, or moves them into an archive."""

from __future__ import annotations

import errno
import hashlib
import os
import stat as mode
import tempfile
from collections.abc import Callable, Container, Mapping

from typing_extensions import override

from dagflow.errors import AlreadyExistsError, SourceChangedError, StorageError
from dagflow.storage.backends.local.disk import make_directories, move_exclusive, translated
from dagflow.storage.backends.local.local_file import names_of, stat_of
from dagflow.storage.base import SourceFiles
from dagflow.storage.files import FileStat
from dagflow.storage.location import is_local, join, parent


class LocalSourceFiles(SourceFiles):
    """Source files of a local disk; a symbolic link is archived as a link, and leads to the same file from there.

    Guarantee: only the processed version is removed or archived, even if another program puts another one under the
    name at any moment. For this a file gets a hidden name before the last look at it. It is the same name after a
    crash, so that a file that was left under it is found again. What a program writes into the processed file meanwhile
    goes with it.
    """

    @override
    def require_archive(self, url: str) -> None:
        with translated(url, "write into the archive"):
            make_directories(url, durable=False)
            with tempfile.TemporaryFile(dir=url):
                pass

    @override
    def remove_version(self, expected: FileStat) -> str:
        with translated(expected.url, "remove"):
            return _put_away(expected, os.unlink)

    @override
    def archive_version(self, expected: FileStat, target: str) -> str:
        if not is_local(target):
            return super().archive_version(expected, target)

        def archive(source: str) -> None:
            with translated(target, f"archive {expected.url}"):
                make_directories(parent(target), durable=False)
                _move(source, target, expected.url)

        try:
            with translated(expected.url, "archive"):
                return _put_away(expected, archive)
        except AlreadyExistsError:
            return f"{target} exists"

    @override
    def names_of(self, directory: str, file_ids: Container[int]) -> Mapping[int, str]:
        return names_of(directory, file_ids)


def hidden_name(expected: FileStat) -> str:
    """The name of a version while it is put away, in the same directory; scans skip it."""
    version = f"{expected.size_bytes} {expected.mtime_ns} {expected.file_id} {expected.url}"
    digest = hashlib.blake2b(os.fsencode(version), digest_size=16).hexdigest()
    return join(parent(expected.url), f".dagflow-source-{digest}")


def _put_away(expected: FileStat, act: Callable[[str], None]) -> str:
    """Give a file its hidden name, under which `act` puts it away if it is the version, otherwise restore its name.

    Returns:
        Why the version was left; "" where it was put away.
    """
    hidden = hidden_name(expected)
    if not os.path.lexists(hidden):
        if difference := _difference(expected, os.stat(expected.url)):
            raise SourceChangedError(difference, url=expected.url)
        if (links := os.lstat(expected.url).st_nlink) > 1:
            return f"it has {links} hard links, and the splitter would take another one for this file, renamed"
        os.rename(expected.url, hidden)
    try:
        difference = _difference(expected, os.stat(hidden))
    except FileNotFoundError:
        difference = "it is a link that leads nowhere"
    if difference:
        return _put_back(hidden, expected.url, difference)
    try:
        act(hidden)
    except OSError:
        if kept := _put_back(hidden, expected.url, ""):
            return kept
        raise
    return ""


def _difference(expected: FileStat, status: os.stat_result) -> str:
    if not mode.S_ISREG(status.st_mode):
        return "it is no longer a file"
    return expected.difference(stat_of(expected.url, status))


def _put_back(hidden: str, url: str, difference: str) -> str:
    """Give a file its name back, and raise where it is another version, or say why it keeps the hidden one."""
    try:
        move_exclusive(hidden, url)
    except FileExistsError:
        if not os.path.samestat(os.lstat(hidden), os.lstat(url)):
            return f"another file has taken its place meanwhile, and the earlier file is now {hidden}; rename it"
        os.unlink(hidden)
    if difference:
        raise SourceChangedError(difference, url=url)
    return ""


def _move(source: str, target: str, url: str) -> None:
    try:
        if os.path.islink(source):
            # Unchanged, a relative link would lead nowhere from its new directory.
            os.symlink(os.path.realpath(source), target)
            os.unlink(source)
        else:
            move_exclusive(source, target)
    except FileExistsError:
        if not _is_moved(source, target):
            raise
        os.unlink(source)
    except OSError as error:
        if error.errno != errno.EXDEV:
            raise
        hint = "put the archive on the file system of the source files; files that are merged and published stay so"
        raise StorageError(f"cannot archive {url}: it is on another file system", url=target, hint=hint) from error


def _is_moved(source: str, target: str) -> bool:
    """Whether a move was cut off when the file already had its new name, and still its old one."""
    if os.path.islink(source):
        return os.path.islink(target) and os.readlink(target) == os.path.realpath(source)
    return os.path.samestat(os.lstat(source), os.lstat(target))
