"""An archive of Spark's loaded classes, from which every later Java process starts faster.

Finding, reading and checking the classes takes a third of the time of a small run. Java calls this application
class-data sharing (JEP 310).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import subprocess
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path

from dagflow.errors import DagflowError
from dagflow.runtime.java import cache_folders

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
        java_home: The Java that will be started.
        run: Runs a small Spark job with an option for Java and a log file until Java has ended, and returns the class
            path.
        environ: Where the directories for such files are looked up.
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
