"""Classes are found by name; what stands in the way is said, and nothing is left behind."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from dagflow.api.operator import Operator
from dagflow.spec.class_lookup import (
    OPERATOR,
    UnknownClassError,
    author_modules,
    built_in,
    find_class,
    search_path_of,
    user_modules,
)

MINE = "from dagflow import Operator\n\n\nclass Mine(Operator):\n    pass\n"


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str, str], None]:
    """Writes a module below the search path."""

    def write(name: str, code: str) -> None:
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(code)

    return write


Write = Callable[[str, str], None]


def test_built_in_operators_have_short_names() -> None:
    """Every operator among the library's public names, and nothing else."""
    found = built_in(OPERATOR)
    assert {"FileSplitterInput", "FileSplitterBase", "BlockReader", "RecordFilter", "RecordWriter"} <= found.keys()
    assert all(issubclass(cls, Operator) for cls in found.values())
    assert find_class("BlockReader", [], OPERATOR) is found["BlockReader"]


def test_a_users_class_is_found_in_a_module_and_in_a_package(tmp_path: Path, write: Write) -> None:
    """Dotted paths of any length."""
    write("own_flat.py", MINE)
    write("own_package/__init__.py", "")
    write("own_package/deep.py", MINE)
    for name in ("own_flat.Mine", "own_package.deep.Mine"):
        assert find_class(name, [str(tmp_path)], OPERATOR).__qualname__ == "Mine"


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("BlockRaeder", "there is no built-in operator 'BlockRaeder'; did you mean 'BlockReader'?"),
        ("Zzz", "there is no built-in operator 'Zzz'; there are Aggregate, BlockReader, Check, "),
        ("read_block", "there is no built-in operator 'read_block'"),
        ("own_good.Mien", "module 'own_good' has no class 'Mien'; did you mean 'Mine'?"),
        ("own_good.Zzz", "module 'own_good' has no class 'Zzz'; it has Operator, Mine"),
        ("own_good.number", "'own_good.number' is not an operator; derive it from dagflow.Operator"),
        ("own_god.Mine", "there is no module 'own_god' in "),
        ("own_god.Mine", "did you mean 'own_good'?"),
        ("own_good.deeper.Mine", "there is no module 'own_good.deeper'"),
        ("own good.Mine", "'own good.Mine' is not the name of a class"),
        (".Mine", "'.Mine' is not the name of a class"),
        ("own_syntax.Mine", "own_syntax.py:2: "),
        ("own_raises.Mine", "own_raises.py:3: ZeroDivisionError: division by zero"),
        ("own_exits.Mine", "SystemExit: 3"),
        ("own_needs.Mine", "own_needs.py:2: ModuleNotFoundError: No module named 'own_helper_that_is_missing'"),
        ("os.path.join", "'os.path.join' is not an operator"),
        ("operators.writer.record_writer.RecordWriter", "; there is a built-in 'RecordWriter'"),
    ],
)
def test_a_class_that_cannot_be_had_is_explained(tmp_path: Path, write: Write, name: str, message: str) -> None:
    """The reason names the user's own file and line, and sys.path and sys.modules are as before."""
    write("own_good.py", MINE + "\nnumber = 5\n")
    write("own_syntax.py", "x = 1\ndef (:\n")
    write("own_raises.py", "\n\nx = 1 / 0\n")
    write("own_exits.py", "raise SystemExit(3)\n")
    write("own_sibling.py", "")
    write("own_needs.py", "import own_sibling\nimport own_helper_that_is_missing\n")
    paths = list(sys.path)
    with pytest.raises(UnknownClassError, match=re.escape(message)):
        find_class(name, [str(tmp_path)], OPERATOR)
    assert sys.path == paths
    assert not [module for module in sys.modules if module.startswith("own_")]


def test_a_module_that_hides_behind_another_is_reported(tmp_path: Path, write: Write) -> None:
    """A user's json.py would never be imported; the error says why."""
    write("json.py", MINE)
    with pytest.raises(UnknownClassError, match=r"json\.py is hidden by another module of the name 'json'; rename it"):
        find_class("json.Mine", [str(tmp_path)], OPERATOR)


def test_two_apps_may_have_modules_of_the_same_name(tmp_path: Path, write: Write) -> None:
    """Each app gets the module beside it, also in one process."""
    write("a/own_ops.py", MINE + "\n\nclass OnlyA(Operator):\n    pass\n")
    write("b/own_ops.py", MINE + "\n\nclass OnlyB(Operator):\n    pass\n")
    assert find_class("own_ops.OnlyA", [str(tmp_path / "a")], OPERATOR).__name__ == "OnlyA"
    assert find_class("own_ops.OnlyB", [str(tmp_path / "b")], OPERATOR).__name__ == "OnlyB"
    assert find_class("own_ops.OnlyA", [str(tmp_path / "a")], OPERATOR).__name__ == "OnlyA"


def test_the_working_directory_comes_before_the_apps_own(tmp_path: Path) -> None:
    """The search path has each directory once."""
    assert search_path_of(str(tmp_path / "app.yaml")) == (str(Path.cwd()), str(tmp_path.resolve()))
    assert search_path_of("app.yaml") == (str(Path.cwd()),)


def test_what_the_executors_need_is_followed_through_imports(tmp_path: Path, write: Write) -> None:
    """Siblings go along, also those that a function imports late; libraries and built-ins do not."""
    late = "\n\ndef late():\n    import own_late\n    from own_package.deep import x\n"
    write("own_main.py", "import json, pyarrow\nimport own_early\n" + MINE + late)
    write("own_early.py", "import own_main\n")
    write("own_late.py", "")
    write("own_unused.py", "")
    write("own_package/__init__.py", "")
    write("own_package/deep.py", "from . import other\nimport own_from_package\nx = 1\n")
    write("own_package/other.py", "")
    write("own_from_package.py", "this is not Python")
    search_path = [str(tmp_path)]
    found = user_modules(["own_main", find_class("BlockReader", search_path, OPERATOR).__module__], search_path)
    names = ["own_early.py", "own_from_package.py", "own_late.py", "own_main.py", "own_package"]
    assert found == [tmp_path / name for name in names]


def test_property_values_name_modules_by_dotted_paths(tmp_path: Path, write: Write) -> None:
    """Anywhere in the values; what is no dotted path, or names no module of the author's, is none."""
    write("own_formats.py", "")
    write("own_checks.py", "")
    search_path = [str(tmp_path)]
    values = {"format": {"type": "own_formats.Pairs", "n": 2}, "checks": ["own_checks.is_good", None], "path": "a.b/c"}
    assert author_modules(values, search_path) == {"own_formats", "own_checks"}
    assert author_modules(["own_formats", "own formats.x", "own_formats.", "os.path", "x" * 999], search_path) == set()
