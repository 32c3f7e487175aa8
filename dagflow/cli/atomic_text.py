"""Files that are written whole or not at all."""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path

from dagflow.errors import DagflowError


def write_whole(file: Path, text: str, what: str) -> None:
    """Put a text into the place of a file, so that a reader sees the old or the new one as a whole.

    Args:
        file: The file.
        text: Its new content.
        what: What it is, for messages.

    Raises:
        DagflowError: It cannot be written.
    """
    name = ""
    try:
        # The collector of node_exporter reads *.prom: this name does not end so.
        descriptor, name = tempfile.mkstemp(prefix=f".{file.name}.", dir=file.parent)
        with open(descriptor, "w", encoding="utf-8") as written:
            written.write(text)
        os.chmod(name, 0o644)  # what reads it may be another user
        os.replace(name, file)
    except OSError as error:
        if name:
            with contextlib.suppress(OSError):
                os.unlink(name)
        raise DagflowError(
            f"{file}: cannot write {what}: {error.strerror or error}", hint="name a file in a writable directory"
        ) from error
