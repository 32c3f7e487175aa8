"""Which modules are an app's author's own, and go to the executors with the app."""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from pathlib import Path

from dagflow.spec.class_lookup import origin_of


def user_modules(modules: Iterable[str], search_path: Sequence[str]) -> list[Path]:
    """The files and packages of the author's that an app needs.

    What a module imports is followed, also where a function imports it late. Installed packages are
    not the author's own.
    """
    waiting = [name.partition(".")[0] for name in modules]
    own: dict[str, Path] = {}
    while waiting:
        top = waiting.pop()
        origin = None if top in own or _is_installed(top) else origin_of(top, search_path)
        if origin is not None:
            own[top] = origin
            waiting += _imports(origin)
    return sorted(own.values())


def folder_of_module(name: str) -> str | None:
    """The directory of an imported module of an app's author; None for an installed one."""
    top = name.partition(".")[0]
    file = None if _is_installed(top) else getattr(sys.modules.get(top), "__file__", None)
    if file is None:
        return None
    path = Path(file).resolve()
    folder = path.parent.parent if path.name == "__init__.py" else path.parent
    installed = (Path(sysconfig.get_path(key)).resolve() for key in ("purelib", "platlib", "stdlib"))
    return None if folder in installed else str(folder)


def _is_installed(top: str) -> bool:
    # Code that a script or a notebook defines itself is sent with its operators.
    return top in ("dagflow", "operators", "pyspark", "__main__") or top in sys.stdlib_module_names


def _imports(origin: Path) -> set[str]:
    names: set[str] = set()
    for file in origin.rglob("*.py") if origin.is_dir() else [origin]:
        with contextlib.suppress(OSError):
            found = file.stat()
            names |= _imports_of_file(file, found.st_ino, found.st_size, found.st_mtime_ns)
    return names


# A run asks twice, and a process that runs many apps asks for the same modules over and over.
@functools.lru_cache(maxsize=4096)
def _imports_of_file(file: Path, inode: int, size_bytes: int, mtime_ns: int) -> frozenset[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        # A broken file that was imported has been reported; one that was not does no harm.
        return frozenset()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return frozenset(names)
