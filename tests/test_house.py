"""What the house asks of every file, counted over all of them."""

import ast
import configparser
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

import dagflow
import operators
from tests.house_rules import ROOT, RULES, everything, lines_of, nodes_of, page_sources

# As installed, so that the very files are checked that people get.
FRAMEWORK = sorted(Path(dagflow.__file__).parent.rglob("*.py"))
LIBRARY = sorted(Path(operators.__file__).parent.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
OTHERS = sorted([*ROOT.glob("*.py"), *ROOT.glob("apps/*.py"), *ROOT.glob("benchmarks/*.py")])
SOURCES = [*FRAMEWORK, *LIBRARY, *OTHERS]
EVERYTHING = [*SOURCES, *TESTS]

FILE_SYSTEMS = {"fsspec", "s3fs", "gcsfs", "adlfs"}

Function = ast.FunctionDef | ast.AsyncFunctionDef


def functions(paths: list[Path]) -> Iterator[tuple[str, Function]]:
    """Every function and method, with the place where it stands."""
    for path in paths:
        for node in nodes_of(path):
            if isinstance(node, Function):
                yield f"{path}:{node.lineno} {node.name}", node


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Every top-level package that a file imports anywhere, with its line."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name.partition(".")[0]) for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.lineno, node.module.partition(".")[0]


def calls(paths: list[Path], *names: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call of functions by their dotted names, with its place."""
    last = {name.rpartition(".")[2] for name in names}
    for path in paths:
        for node in nodes_of(path):
            if not isinstance(node, ast.Call):
                continue
            if getattr(node.func, "attr", getattr(node.func, "id", "")) in last and ast.unparse(node.func) in names:
                yield f"{path}:{node.lineno}", node


def comments(paths: list[Path], words: re.Pattern[str]) -> Iterator[tuple[str, str]]:
    """Every comment that has one of some words, with its place."""
    for path in paths:
        # To take apart all files takes long.
        if not any(map(words.search, lines_of(path))):
            continue
        with path.open("rb") as file:
            for token in tokenize.tokenize(file.readline):
                if token.type == tokenize.COMMENT and words.search(token.string):
                    yield f"{path}:{token.start[0]}", token.string


def test_the_files_are_found() -> None:
    """The laws below are about something."""
    names = {path.name for path in EVERYTHING}
    assert {"errors.py", "metadata.py", "start.py", "drop_comments.py", "throughput.py", "test_house.py"} <= names
    assert {"app.js", "graph.js", "base.css"} <= {path.name for path in page_sources()}


@pytest.mark.parametrize("rule", sorted(RULES))
def test_a_rule_of_the_house_holds_everywhere(rule: str) -> None:
    """Each rule says in its docstring why."""
    assert [str(violation) for violation in RULES[rule](everything())] == []


def test_only_the_runtime_and_the_data_source_import_pyspark() -> None:
    """All other modules run without a JVM."""
    found = [path for path in [*FRAMEWORK, *LIBRARY] if {"pyspark", "py4j"} & {name for _, name in imports(path)}]
    assert [path.relative_to(FRAMEWORK[0].parent).as_posix() for path in found] == [
        "runtime/connect.py",
        "runtime/spark.py",
        "runtime/spark_context.py",
        "runtime/spark_process.py",
        "runtime/spark_tasks.py",
        "spark/__init__.py",
        "spark/data_source.py",
        "spark/dataframes.py",
    ]


def test_only_storage_imports_file_systems() -> None:
    """Every other module reads and writes through dagflow.storage."""
    storage = Path(dagflow.__file__).parent / "storage"
    found = [path for path in [*FRAMEWORK, *LIBRARY] if FILE_SYSTEMS & {name for _, name in imports(path)}]
    assert [str(path) for path in found if storage not in path.parents] == []


def test_the_framework_does_not_import_the_library() -> None:
    """What the built-in operators can do, a user's can."""
    found = [f"{path}:{line}" for path in FRAMEWORK for line, name in imports(path) if name == "operators"]
    assert found == []


def test_the_contract_of_the_library_names_each_package() -> None:
    """What the library may use is listed here, and import-linter forbids all the rest of the framework."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / "setup.cfg")
    forbidden = set(contracts["importlinter:contract:library"]["forbidden_modules"].split())
    parts = {path.relative_to(FRAMEWORK[0].parent).parts[0].removesuffix(".py") for path in FRAMEWORK}
    names = ("api", "storage", "metrics", "errors", "plugins", "suggestions", "secret_names", "frozen", "late")
    allowed = {f"dagflow.{name}" for name in names}
    assert {f"dagflow.{name}" for name in parts if not name.startswith("__")} - forbidden == allowed


def test_every_ignored_type_error_has_a_code_and_a_reason() -> None:
    """A reader can tell whether it is still needed."""
    pattern = re.compile(r"# type: ignore\[[a-z-]+(, ?[a-z-]+)*\]  # \w")
    ignored = comments(EVERYTHING, re.compile("type: ignore"))
    found = [place for place, text in ignored if not pattern.match(text)]
    assert found == []


def test_every_rule_that_is_switched_off_has_a_code_and_a_reason() -> None:
    """A reader can tell why the rule does not apply there."""
    pattern = re.compile(r"# noqa: [A-Z]+\d+(, ?[A-Z]+\d+)*  # \w")
    switched_off = comments(EVERYTHING, re.compile("noqa"))
    assert [place for place, text in switched_off if not pattern.search(text)] == []


def test_nothing_is_left_for_later() -> None:
    """What is not done is not hinted at in the code."""
    words = re.compile(r"\b(TODO|FIXME|XXX|HACK)\b")
    assert [place for place, _ in comments(EVERYTHING, words)] == []


def test_private_names_of_modules_are_used() -> None:
    """Linters leave constants of a module alone, because others may import them."""
    unused = []
    for path in SOURCES:
        text = path.read_text()
        words = Counter(re.findall(r"\w+", text))
        assigned = re.findall(r"^(_[a-zA-Z][\w, ]*)(?::.*)? = ", text, re.MULTILINE)
        names = [name for group in assigned for name in group.split(", ")]
        unused += [f"{path}: {name}" for name in names if words[name] == 1]
    assert unused == []


def test_what_is_left_to_subclasses_is_done_by_them() -> None:
    """A method that only raises NotImplementedError stands for those that override it, and not for work to come."""
    every = list(functions(EVERYTHING))
    count_by_name = Counter(node.name for _, node in every)
    hollow = [
        place
        for place, node in every
        if any(isinstance(part, ast.Raise) and "NotImplementedError" in ast.unparse(part) for part in node.body)
        and count_by_name[node.name] == 1
    ]
    assert hollow == []


def test_only_the_command_line_prints() -> None:
    """The library reports what it does by its results, its errors and its log."""
    cli = Path(dagflow.__file__).parent / "cli"
    printing = [place for place, _ in calls([*FRAMEWORK, *LIBRARY], "print")]
    assert [
        place for place in printing if not place.startswith((str(cli), str(cli.parent / "runtime" / "java.py")))
    ] == []


def test_every_expected_error_is_matched() -> None:
    """A test that expects an error expects its text, and not just any error of the kind."""
    raising = (
        (place, node)
        for place, node in calls(TESTS, "pytest.raises")
        # The failed assertion of a suite that is itself under test has no text of its own.
        if ast.unparse(node.args[0]) != "AssertionError"
    )
    assert [place for place, node in raising if "match" not in {word.arg for word in node.keywords}] == []


def test_tests_neither_sleep_nor_mock() -> None:
    """A test waits for what happens, and runs the real thing."""
    tests = [path for path in TESTS if path.name.startswith("test_")]
    assert [place for place, _ in calls(tests, "sleep", "time.sleep")] == []
    mocking = [f"{path}:{line}" for path in TESTS for line, name in imports(path) if name in ("mock", "pytest_mock")]
    assert mocking == []
    assert [path for path in TESTS if "unittest." + "mock" in path.read_text(encoding="utf-8")] == []


@pytest.mark.parametrize("package", [dagflow, operators], ids=["dagflow", "operators"])
def test_packages_carry_their_types(package: object) -> None:
    """People who check their own code see dagflow's types."""
    assert Path(str(package.__file__)).with_name("py.typed").is_file()  # type: ignore[attr-defined]  # a module has one
