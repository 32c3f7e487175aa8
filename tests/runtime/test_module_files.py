"""What tasks on this machine and executors get of the modules of an app."""

from __future__ import annotations

import importlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dagflow.execution.messages import Program
from dagflow.runtime.module_files import LARGE_BYTES, package_zip
from dagflow.runtime.spark import SparkRuntime
from tests.runtime.runtime_contract import exchanging_plan, operators_of


def package_in(folder: Path, *files: str) -> Path:
    """A package whose files hold their own names as comments."""
    for name in files:
        file = folder / "linked_package" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"# {name}\n")
    return folder / "linked_package"


def file_of(module: str) -> str:
    """Where a task imports a module from."""
    return str(importlib.import_module(module).__file__)


@pytest.mark.spark
def test_local_tasks_import_modules_from_where_they_are(tmp_path: Path, spark_context: Any) -> None:
    """Nothing is copied, however large a package is."""
    package = package_in(tmp_path / "sources", "__init__.py")
    program = Program.of("app", exchanging_plan(), operators_of(tmp_path))
    runtime = SparkRuntime(program, spark_context, modules=[package])
    (found,) = runtime.map(file_of, ["linked_package"])
    assert Path(found).samefile(package / "__init__.py")
    assert spark_context.listFiles == spark_context.listArchives == []
    runtime.close()


def test_sources_are_zipped_without_what_no_module_reads(tmp_path: Path) -> None:
    """Without what Python has compiled and hidden directories; the archive is named by what it holds."""
    package = package_in(
        tmp_path / ".sources", "inner.py", "data/words.txt", "__pycache__/inner.pyc", ".git/config", "data/.cache/a"
    )
    module = tmp_path / ".sources" / "module.py"
    module.write_text("VALUE = 2\n")
    archive = package_zip([package, module], tmp_path)
    found = zipfile.ZipFile(archive)
    assert sorted(found.namelist()) == ["linked_package/data/words.txt", "linked_package/inner.py", "module.py"]
    assert found.read("linked_package/data/words.txt") == b"# data/words.txt\n"
    assert package_zip([package, module], tmp_path) == archive
    module.write_text("VALUE = 3\n")
    assert package_zip([package, module], tmp_path) != archive


def test_a_file_that_vanishes_while_sources_are_zipped_is_left_out(tmp_path: Path) -> None:
    """Input or output inside of a package changes meanwhile."""
    package, other = package_in(tmp_path, "a.py", "gone.txt"), tmp_path / "other.py"
    other.touch()

    def paths() -> Iterator[Path]:
        yield package
        (package / "gone.txt").unlink()
        yield other

    assert zipfile.ZipFile(package_zip(paths(), tmp_path)).namelist() == ["linked_package/a.py", "other.py"]


def test_a_large_package_is_reported_with_its_largest_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Each executor gets it, which takes its time."""
    package = package_in(tmp_path, "a.py", "data/large.bin")
    package_zip([package], tmp_path)
    assert caplog.messages == []
    with (package / "data" / "large.bin").open("wb") as large:
        large.truncate(LARGE_BYTES)
    package_zip([package], tmp_path)
    (message,) = caplog.messages
    assert f"{package}/data/large.bin has 67 MB of them" in message
