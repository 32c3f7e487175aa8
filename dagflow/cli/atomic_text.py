"""Files that are written whole or not at all: apart, because the library for temporary files delays each start."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

from dagflow.errors import DagflowError


def write_whole(file: Path, text: str, what: str) -> None:
    """Replace the content of a file, so that a reader sees the old or the new text as a whole.

    A link stays, and the file that it names is replaced. Devices, pipes and this process's own output cannot be
    replaced, and are written to.

    Raises:
        DagflowError: The file cannot be written.
    """
    name = ""
    try:
        descriptor = _opened(file)
        if descriptor is not None:
            _write_text(descriptor, text)
            return
        replaced = Path(os.path.realpath(file))
        # The collector of node_exporter reads *.prom: this name must not end so.
        descriptor, name = tempfile.mkstemp(prefix=f".{replaced.name}.", dir=replaced.parent)
        _write_text(descriptor, text)
        os.chmod(name, 0o644)  # what reads it may be another user
        os.replace(name, replaced)
    except OSError as error:
        if name:
            with contextlib.suppress(OSError):
                os.unlink(name)
        raise DagflowError(
            f"{file}: cannot write {what}: {error.strerror or error}", hint="name a file in a writable directory"
        ) from error


def _opened(file: Path) -> int | None:
    """A descriptor to write to directly, as of a device; None for a file that is replaced, or does not exist yet."""
    try:
        found = os.stat(file)
    except FileNotFoundError:
        return None
    for own in (1, 2):
        with contextlib.suppress(OSError):  # the caller closed it
            # The descriptor of /dev/stdout is a regular file where the shell appends to one, which holds more than this
            # text.
            if os.path.samestat(found, os.fstat(own)):
                return os.dup(own)
    return None if stat.S_ISREG(found.st_mode) else os.open(file, os.O_WRONLY)


def _write_text(descriptor: int, text: str) -> None:
    with open(descriptor, "w", encoding="utf-8") as written:
        written.write(text)
