"""A directory that many runs begin with."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def restored_afterwards(made: Path) -> Iterator[None]:
    """Let a directory be as it was afterwards: journals and tables know its path."""
    kept = made.with_name("kept")
    # A file of the input is known by its inode, so that a copy would be another one.
    shutil.copytree(made, kept, copy_function=_linked)
    yield
    shutil.rmtree(made)
    kept.rename(made)


def _linked(source: str, copy: str) -> None:
    """A second name of a file of the input, which nothing changes; a copy of any other."""
    (os.link if Path(source).parent.name == "in" else shutil.copy2)(source, copy)
