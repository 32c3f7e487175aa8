"""Input files that have been processed and are no longer wanted where they are."""

from __future__ import annotations

import errno
import os
import tempfile

from dagflow.errors import AlreadyExistsError, MissingError, StorageError
from dagflow.storage.files import FileStat, stat
from dagflow.storage.local_disk import make_directories, move_exclusive, translated
from dagflow.storage.location import is_local, parent, redacted
from dagflow.storage.pending import remove


def settle() -> None:
    """Wait until what this machine has written is on its disks, so that what follows may rely on it."""
    os.sync()


def remove_version(expected: FileStat) -> str:
    """Remove a file if it is the version that was processed.

    Returns:
        Why it was left; "" where it is gone now, or was before.

    Raises:
        StorageError: The store refused.
    """
    try:
        if reason := expected.difference(stat(expected.url)):
            return reason
        remove(expected.url)
    except MissingError:
        pass
    return ""


def require_archive(url: str) -> None:
    """Make sure that local files can be moved below a directory, which is made if it is not there.

    Raises:
        StorageError: It cannot be made, or nothing can be written there.
    """
    with translated(url, "write into the archive"):
        make_directories(url, durable=False)
        with tempfile.TemporaryFile(dir=url):
            pass


def archive_version(expected: FileStat, target: str) -> str:
    """Move a local file elsewhere on its file system if it is the version that was processed.

    Of a symbolic link the link is moved, and leads to the same file from there.

    Args:
        expected: The file.
        target: Its new name.

    Returns:
        Why it was left; "" where it is in the archive now, or was before.

    Raises:
        StorageError: It lies on another file system than its archive, or the store refused.
    """
    if not (is_local(expected.url) and is_local(target)):
        raise StorageError("only files of a local disk can be archived", url=redacted(expected.url))
    try:
        if reason := expected.difference(stat(expected.url)):
            return reason
        with translated(target, f"archive {expected.url}"):
            make_directories(parent(target), durable=False)
            _move(expected.url, target)
    except MissingError:
        return ""
    except AlreadyExistsError:
        return f"{target} exists"
    return ""


def _move(source: str, target: str) -> None:
    try:
        if os.path.islink(source):
            # As it is, a relative link would lead nowhere from its new place.
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
        hint = "put the archive on the file system of the originals; what is merged and published stays so"
        raise StorageError(f"cannot archive {source}: it lies on another file system", url=target, hint=hint) from error


def _is_moved(source: str, target: str) -> bool:
    """Whether a move was cut off when the file had its new name already, and its old one still."""
    if os.path.islink(source):
        return os.path.islink(target) and os.readlink(target) == os.path.realpath(source)
    return os.path.samestat(os.lstat(source), os.lstat(target))
