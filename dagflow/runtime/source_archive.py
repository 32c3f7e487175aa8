"""Zips Python sources for executors on which neither dagflow nor the user's modules are installed."""

from __future__ import annotations

import hashlib
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path


def _sources(path: Path) -> Iterator[tuple[Path, str]]:
    if path.is_file():
        yield path, path.name
        return
    for file in sorted(path.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, str(Path(path.name) / file.relative_to(path))


def package_zip(paths: Iterable[Path]) -> Path:
    """Put modules and packages into a zip file that Python can import from.

    Args:
        paths: Module files and package directories; each is importable by its own name.

    Returns:
        A file in the system's temporary directory, named by its content, so that the same sources are zipped once.
    """
    digest = hashlib.sha256()
    members = [member for path in paths for member in _sources(path)]
    for file, name in members:
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    target = Path(tempfile.gettempdir()) / f"dagflow_{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        draft = tempfile.NamedTemporaryFile(dir=target.parent, suffix=".zip", delete=False)  # noqa: SIM115  # renamed below
        with draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, name in members:
                archive.writestr(zipfile.ZipInfo(name), file.read_bytes())
        Path(draft.name).replace(target)
    return target
