"""Source files of a local disk, removed or moved into an archive."""

from __future__ import annotations

import errno
import os
import tempfile

from typing_extensions import override

from dagflow.errors import AlreadyExistsError, MissingError, StorageError
from dagflow.storage.backends.local.disk import make_directories, move_exclusive, translated
from dagflow.storage.file_stat import FileStat
from dagflow.storage.location import is_local, parent
from dagflow.storage.source_files import SourceFiles


class LocalSourceFiles(SourceFiles):
    """Files of a local disk; of a symbolic link the link is archived, and leads to the same file from there."""

    @override
    def require_archive(self, url: str) -> None:
        with translated(url, "write into the archive"):
            make_directories(url, durable=False)
            with tempfile.TemporaryFile(dir=url):
                pass

    @override
    def archive_version(self, expected: FileStat, target: str) -> str:
        if not is_local(target):
            return super().archive_version(expected, target)
        try:
            if reason := expected.difference(self.files.stat(expected.url)):
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
        hint = "put the archive on the file system of the source files; what is merged and published stays so"
        raise StorageError(f"cannot archive {source}: it lies on another file system", url=target, hint=hint) from error


def _is_moved(source: str, target: str) -> bool:
    """Whether a move was cut off when the file had its new name already, and its old one still."""
    if os.path.islink(source):
        return os.path.islink(target) and os.readlink(target) == os.path.realpath(source)
    return os.path.samestat(os.lstat(source), os.lstat(target))
