"""The app's modules as files that tasks can import: links on this machine, an archive for others."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

LARGE_BYTES = 64 << 20
"""Bytes to copy to each executor above which a warning is logged."""


def linked_sources(paths: Iterable[Path], directory: Path) -> Path:
    """Create a directory with links to modules, below another directory; nothing is copied."""
    made = Path(tempfile.mkdtemp(dir=directory))
    for path in paths:
        (made / path.name).symlink_to(path)
    return made


def package_zip(paths: Iterable[Path], directory: Path) -> Path:
    """Create a zip file in a directory, named by its content: Spark accepts one content for each name.

    Compiled files and hidden directories are left out; so is a file that vanishes meanwhile, as files of a concurrent
    run do.
    """
    members = [member for path in paths for member in _files_of(path)]
    _warn_of_size([file for file, _ in members])
    made = directory / "sources.zip"
    with zipfile.ZipFile(made, "w") as archive:
        for file, name in members:
            try:
                source = file.open("rb")
            except FileNotFoundError:
                continue
            # Without the file's time, so that the same content gives the same name.
            with source, archive.open(zipfile.ZipInfo(name), "w", force_zip64=True) as target:
                shutil.copyfileobj(source, target)
    with made.open("rb") as whole:
        digest = hashlib.file_digest(whole, "sha256").hexdigest()
    return made.rename(directory / f"dagflow_{digest[:16]}.zip")


def _files_of(path: Path) -> Iterator[tuple[Path, str]]:
    if path.is_file():
        yield path, path.name
        return
    for folder, folders, names in os.walk(path):
        folders[:] = sorted(name for name in folders if name != "__pycache__" and not name.startswith("."))
        for name in sorted(names):
            file = Path(folder, name)
            if file.is_file():
                yield file, str(path.name / file.relative_to(path))


def _warn_of_size(files: Iterable[Path]) -> None:
    sizes = {file: _size_of(file) for file in files}
    if (total := sum(sizes.values())) > LARGE_BYTES:
        largest = max(sizes, key=sizes.__getitem__)
        logger.warning(
            "each executor gets %d MB with the app's modules, %s has %d MB of them: files that no module reads are "
            "better kept outside of packages",
            total // 1_000_000,
            largest,
            sizes[largest] // 1_000_000,
        )


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0
