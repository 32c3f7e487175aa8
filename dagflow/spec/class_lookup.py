"""Finds the classes of operators: built-ins by short name, users' own by dotted path."""

from __future__ import annotations

import ast
import contextlib
import functools
import importlib
import importlib.util
import inspect
import re
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from dagflow.api.operator import Operator
from dagflow.api.partitioning import PartitionPolicy, StreamCodec
from dagflow.frozen import frozen
from dagflow.plugins import plugins
from dagflow.spec.problems import quoted, shortened
from dagflow.storage.base import Backend
from dagflow.suggestions import did_you_mean, nearest

LIBRARY = "operators"
"""The package of the built-in operators; its public names are the short names of an app."""

_MAX_NAME = 250
"""File systems refuse longer names with an error of their own."""


class _AddedFolder(str):
    """An entry of sys.path that find_class has made, and may therefore take away again."""

    __slots__ = ()


@frozen
class Kind:
    """What sort of class an app names.

    Attributes:
        example: How the dotted path of such a class looks.
        bases: The classes that it derives from one of.
    """

    noun: str
    derive: str
    example: str
    bases: tuple[type, ...]

    def accepts(self, cls: type) -> bool:
        return issubclass(cls, self.bases) and (issubclass(cls, Operator) or not inspect.isabstract(cls))


_OWN_OPERATOR = "my_ops.DropComments"
OPERATOR = Kind("operator", "derive it from dagflow.Operator", _OWN_OPERATOR, (Operator,))
CODEC = Kind("stream codec", "derive it from dagflow.StreamCodec", "my_codecs.FirstWord", (StreamCodec,))
POLICY = Kind("partitioner", "derive it from dagflow.PartitionPolicy", "my_policies.Nightly", (PartitionPolicy,))
BACKEND = Kind("storage backend", "derive it from dagflow.storage.base.Backend", "my_stores.ArchiveBackend", (Backend,))
DESCRIBED = Kind(
    "operator or partitioner",
    "derive it from dagflow.Operator or dagflow.PartitionPolicy",
    _OWN_OPERATOR,
    (Operator, PartitionPolicy),
)


class UnknownClassError(Exception):
    """A class that an app names was not found; the message is for the author of the app."""


@cache
def built_in(kind: Kind) -> dict[str, type[Any]]:
    """The classes of a kind with a short name: those of the library, and of installed packages."""
    module = importlib.import_module(LIBRARY)
    found = {plugin.name: plugin.loaded for plugin in plugins("operators").values()}
    found |= {name: getattr(module, name) for name in sorted(module.__all__)}
    return {name: value for name, value in found.items() if inspect.isclass(value) and kind.accepts(value)}


def search_path_of(file: str) -> tuple[str, ...]:
    """Where the modules of an app's author are looked up: the working directory, and beside the app file."""
    return tuple(dict.fromkeys(str(folder) for folder in (Path.cwd(), Path(file).resolve().parent)))


def find_class(name: str, search_path: Sequence[str], kind: Kind) -> type[Any]:
    """Find the class that an app names.

    A user's module stays importable afterwards, because Spark and the module's own late imports need
    that; after a failure sys.path and sys.modules are as they were.

    Raises:
        UnknownClassError: There is no such class, its module fails to import, or it is of another kind.
    """
    if "." not in name:
        return _find_built_in(name, kind)
    if len(name) > _MAX_NAME or not all(part.isidentifier() for part in name.split(".")):
        raise UnknownClassError(f"{quoted(name)} is not the name of a class; write for example {kind.example}")
    top = name.partition(".")[0]
    _forget_other_users(top, origin_of(top, search_path))
    paths_before, modules_before = list(sys.path), set(sys.modules)
    _add_folders(search_path)
    try:
        found = _class_of(name, search_path, kind)
    except UnknownClassError:
        sys.path[:] = paths_before
        for other in set(sys.modules) - modules_before:
            if _lies_in(sys.modules[other], search_path):
                del sys.modules[other]
        raise
    return found


def author_modules(values: object, search_path: Sequence[str]) -> set[str]:
    """The author's top-level modules that values name by a dotted path, as `format: my_formats.Pairs` does."""
    if isinstance(values, Mapping):
        values = list(values.values())
    if isinstance(values, list):
        return {top for value in values for top in author_modules(value, search_path)}
    if not isinstance(values, str) or len(values) > _MAX_NAME or "." not in values:
        return set()
    if not all(part.isidentifier() for part in values.split(".")):
        return set()
    top = values.partition(".")[0]
    return {top} if origin_of(top, search_path) is not None else set()


def make_importable(modules: Iterable[str], search_path: Sequence[str]) -> None:
    """Let the author's modules be imported by their names, also later and by other code, as find_class does."""
    for top in modules:
        _forget_other_users(top, origin_of(top, search_path))
        _add_folders(search_path)


def _class_of(name: str, search_path: Sequence[str], kind: Kind) -> type[Any]:
    module_name, _, class_name = name.rpartition(".")
    hint = ""
    if module_name.partition(".")[0] == LIBRARY:
        library = importlib.import_module(LIBRARY)
        hint = f"; there is a built-in '{class_name}'" if class_name in library.__all__ else ""
    module = _import(module_name, search_path, hint)
    value = getattr(module, class_name, None)
    if inspect.isclass(value) and kind.accepts(value):
        return value
    if value is not None:
        article = "an" if kind.noun[0] in "aeiou" else "a"
        raise UnknownClassError(f"'{name}' is not {article} {kind.noun}; {kind.derive}")
    names = [key for key, other in vars(module).items() if inspect.isclass(other) and kind.accepts(other)]
    hint = did_you_mean(class_name, names) or (f"; it has {', '.join(names)}" if names else "")
    raise UnknownClassError(f"module '{module_name}' has no class '{class_name}'{hint}")


def _find_built_in(name: str, kind: Kind) -> type[Any]:
    library = importlib.import_module(LIBRARY)
    # One by one, so that checking an app loads only what the app uses.
    found = getattr(library, name) if name in library.__all__ else None
    if found is None and (plugin := plugins("operators").get(name)) is not None:
        found = _class_of(plugin.path, (), kind)
    if inspect.isclass(found) and kind.accepts(found):
        return found
    names = built_in(kind)
    own = f"; a class of your own has its module before it, as in {kind.example}"
    hint = did_you_mean(name, names)
    if not hint and (meant := for_purpose(name, names)):
        nearest_ones = "; ".join(f"{each} ({does[:1].lower()}{does[1:]})" for each, does in meant.items())
        hint = f"; the nearest by what they do: {nearest_ones}; `dagflow operators` lists all{own}"
    hint = hint or f"; there are {', '.join(sorted(names))}{own}"
    raise UnknownClassError(f"there is no built-in {kind.noun} {quoted(name)}{hint}")


def origin_of(top: str, search_path: Sequence[str]) -> Path | None:
    """The file or package directory of a top-level module in the search path, or None."""
    for folder in map(Path, search_path):
        package = folder / top
        if (package / "__init__.py").is_file():
            return package
        if (folder / f"{top}.py").is_file():
            return folder / f"{top}.py"
        if package.is_dir() and any(package.glob("*.py")):
            return package
    return None


def _import(name: str, search_path: Sequence[str], hint: str) -> ModuleType:
    top = name.partition(".")[0]
    origin = origin_of(top, search_path)
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise UnknownClassError(_import_failure(name, error, search_path)) from error
        if origin is not None and not _is_from(sys.modules.get(top), origin):
            raise UnknownClassError(_hidden(top, origin)) from error
        folders = " or ".join(search_path)
        hint = hint or _near_module(name, search_path)
        raise UnknownClassError(f"there is no module '{name}' in {folders}{hint}") from error
    # An author's module may do anything while it is imported, sys.exit included.
    except (Exception, SystemExit) as error:
        raise UnknownClassError(_import_failure(name, error, search_path)) from error
    if origin is not None and not _is_from(sys.modules[top], origin):
        raise UnknownClassError(_hidden(top, origin))
    return module


def _hidden(top: str, origin: Path) -> str:
    return f"{origin} is hidden by another module of the name '{top}'; rename it"


def _near_module(name: str, search_path: Sequence[str]) -> str:
    names = {path.stem for folder in search_path for path in Path(folder).glob("*.py")}
    close = nearest(name, names)
    return f"; did you mean '{close}'?" if close else ""


def _import_failure(name: str, error: BaseException, search_path: Sequence[str]) -> str:
    if isinstance(error, SyntaxError) and error.filename:
        return f"module '{name}' is not Python: {error.filename}:{error.lineno}: {error.msg}"
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if any(Path(folder) in Path(frame.filename).parents for folder in search_path)]
    place = f"{own[-1].filename}:{own[-1].lineno}: " if own else ""
    return f"module '{name}' cannot be imported: {place}{type(error).__name__}: {shortened(str(error))}"


def _is_from(module: ModuleType | None, origin: Path) -> bool:
    files = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(file and Path(file).resolve() in (origin.resolve(), origin.resolve() / "__init__.py") for file in files)


def _lies_in(module: ModuleType, folders: Sequence[str]) -> bool:
    files = [getattr(module, "__file__", None), *getattr(module, "__path__", ())]
    return any(file and Path(folder) in Path(file).parents for file in files for folder in folders)


def _forget_other_users(top: str, origin: Path | None) -> None:
    """Drop a module of the same name that another app of this process brought from another directory."""
    module = sys.modules.get(top)
    if module is None or origin is None or _is_from(module, origin) or not _lies_in(module, _added_folders()):
        return
    for name in [name for name in sys.modules if name == top or name.startswith(f"{top}.")]:
        del sys.modules[name]
    stale = {folder for folder in _added_folders() if _lies_in(module, (folder,))}
    sys.path[:] = [folder for folder in sys.path if folder not in stale]


def _add_folders(search_path: Sequence[str]) -> None:
    # At the end, so that a user's yaml.py or types.py hides nothing from the rest of the process.
    sys.path += [_AddedFolder(folder) for folder in search_path if folder not in sys.path]
    importlib.invalidate_caches()


def _added_folders() -> list[str]:
    return [folder for folder in sys.path if isinstance(folder, _AddedFolder)]


MOST = 3

_SAME = (
    {"sum", "total", "add", "aggregate", "average", "avg", "mean", "group", "tally", "count"},
    {"map", "transform", "project", "rename", "convert", "cast", "column", "select"},
    {"sort", "order", "rank", "limit", "head", "largest", "top"},
    {"unique", "distinct", "dedup", "dedupe", "duplicate", "duplicates", "once", "deduplicator"},
    {"sink", "output", "save", "dump", "export", "store", "write", "writes", "writer"},
    {"source", "input", "load", "scan", "list", "find", "finds", "splitter"},
    {"parse", "parser", "decode", "regex", "read", "reads", "reader"},
    {"where", "drop", "drops", "keep", "keeps", "match", "grep", "filter"},
    {"join", "lookup", "enrich", "enricher"},
    {"sql", "query", "computes"},
    {"check", "validate", "validator", "assert", "expect", "quality"},
    {"concat", "merge", "merges", "compact", "merger"},
    {"table", "delta", "iceberg", "lake"},
    {"delete", "remove", "archive", "clean", "cleaner"},
)
"""Words that stand for one purpose."""


def for_purpose(name: str, classes: Mapping[str, type]) -> dict[str, str]:
    """The classes that a name may mean, each with what it does; the nearest first, and none where no word fits."""
    wanted = _purposes(name)
    does = {each: _first_line(cls) for each, cls in classes.items()}
    # The name of a class says more about it than one of the words that describe it.
    scores = {
        each: 2 * len(wanted & _purposes(each)) + len(wanted & _purposes(text.replace(" ", "_")))
        for each, text in does.items()
    }
    best = sorted((each for each, score in scores.items() if score > 1), key=lambda each: (-scores[each], each))
    return {each: does[each] for each in best[:MOST]}


def _purposes(name: str) -> set[str]:
    words = {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}
    return {min(same) for same in _SAME if words & same}


def _first_line(cls: type) -> str:
    return (cls.__doc__ or "").strip().split("\n")[0].rstrip(".")


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
