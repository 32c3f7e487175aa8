"""Safe single steps on a local disk that Python's os module lacks."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import stat
from collections.abc import Iterator

from dagflow.errors import AlreadyExistsError, MissingError, StorageError, TransientStorageError

_RENAME_NOREPLACE = 1
_AT_FDCWD = -100
# Errors of link(2) on file systems without hard links, and for files that have too many or must not be linked.
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK, errno.EACCES, errno.EINVAL}
_TRANSIENT = {errno.EAGAIN, errno.EINTR, errno.EBUSY, errno.ETIMEDOUT, errno.ESTALE}
_HINTS = {
    errno.ENOSPC: "free some space and start again; nothing that was committed is lost",
    errno.EDQUOT: "raise the quota and start again; nothing that was committed is lost",
    errno.EFBIG: "raise the limit of the size of files: ulimit -f",
    errno.EROFS: "the file system is mounted read-only",
    errno.EACCES: "check the permissions of the file and of the directories above it",
    errno.EMFILE: "raise the limit of open files: ulimit -n",
}


@contextlib.contextmanager
def translated(url: str, action: str, hint: str = "") -> Iterator[None]:
    """Turn an OSError into a StorageError that names the action.

    Args:
        hint: What helps, beside the advice for the error.

    Raises:
        MissingError: There is nothing at the location.
        AlreadyExistsError: The name is taken.
        TransientStorageError: The action may succeed if tried again.
        StorageError: Any other error.
    """
    try:
        yield
    except StorageError:
        raise
    except OSError as error:
        failure = storage_error(error, url, action)
        if hint:
            failure.advise(hint=hint)
        raise failure from error


def storage_error(error: OSError, url: str, action: str) -> StorageError:
    message = f"cannot {action}: {error.strerror or error}"
    hint = _HINTS.get(error.errno or 0, "")
    if isinstance(error, FileNotFoundError):
        return MissingError(message, url=url, hint=hint)
    if isinstance(error, FileExistsError):
        return AlreadyExistsError(message, url=url, hint=hint)
    if error.errno in _TRANSIENT:
        return TransientStorageError(message, url=url, hint=hint)
    return StorageError(message, url=url, hint=hint)


def replace_file(path: str, data: bytes, mode: int | None = None) -> None:
    """Replace the content of a file as a whole: a reader, and the next process after a crash, see the old or the new.

    A link stays, and the file that it names is replaced.

    Args:
        mode: The permissions of the file; None for those that it has.
    """
    replaced = os.path.realpath(path)
    folder, name = os.path.split(replaced)
    # The collector of node_exporter reads *.prom: this name must not end so.
    draft = os.path.join(folder, f".{name}.{os.getpid()}")
    try:
        with open(draft, "wb") as file:
            file.write(data)
        os.chmod(draft, stat.S_IMODE(os.stat(replaced).st_mode) if mode is None else mode)
        os.replace(draft, replaced)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(draft)
        raise


def bounded_ns(nanoseconds: int) -> int:
    """A time within 64 bits: file systems have dates before 1677 and after 2262, too."""
    return max(-(1 << 63), min(nanoseconds, (1 << 63) - 1))


def write_all(descriptor: int, data: memoryview) -> None:
    """Write every byte; a short write, as on a signal or above 2 GiB, is continued."""
    while data:
        written = os.write(descriptor, data)
        data = data[written:]


def sync(path: str) -> None:
    """Make the bytes of a file, or the names in a directory, durable."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_directories(path: str, *, durable: bool, private: str | None = None, required: str | None = None) -> None:
    """Create a directory and its parents.

    Args:
        durable: Whether each new name survives a power loss.
        private: A directory that only its owner may enter, with all below it, if it is created here.
        required: A parent that must exist and is not created; None for none.
    """
    if os.path.isdir(path):
        return
    if path == required:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
    above = os.path.dirname(path)
    if above != path:
        make_directories(above, durable=durable, private=private, required=required)
    is_private = private is not None and (path == private or path.startswith(f"{private}/"))
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700 if is_private else 0o777)
        if durable:
            sync(above)


def move_exclusive(source: str, target: str) -> None:
    """Give a file a new name, atomically, unless the name is taken.

    A crash may leave both names for one file, but never neither.

    Raises:
        FileExistsError: The target exists; nothing was changed.
    """
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if isinstance(error, (FileExistsError, FileNotFoundError)) or error.errno not in _NO_LINKS:
            raise
        _rename_exclusive(source, target)
        return
    os.unlink(source)


def _rename_exclusive(source: str, target: str) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):
        raise OSError(errno.ENOTSUP, "neither hard links nor an exclusive rename are available here", target)
    paths = os.fsencode(source), os.fsencode(target)
    if libc.renameat2(_AT_FDCWD, paths[0], _AT_FDCWD, paths[1], _RENAME_NOREPLACE) != 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code), target)
