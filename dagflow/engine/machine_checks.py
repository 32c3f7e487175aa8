"""What a machine must have to run apps: Python's packages, Java, open files, space."""

from __future__ import annotations

import os
import platform
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from dagflow.errors import DagflowError
from dagflow.runtime.java import use_java
from dagflow.runtime.probe import NEEDED, version_numbers
from dagflow.runtime.start_checks import require_open_files

SPARK_VERSION = "4.3"
LEAST_FREE_BYTES = 256 << 20
"""Free space below which a disk is full in no time."""

OPTIONAL = ("lz4", "python-snappy", "backports.zstd", "s3fs", "obstore", "gcsfs", "adlfs", "hdfs-native")
"""Packages for compressions and stores; code that needs a missing one says so when it runs."""


@dataclass(frozen=True, slots=True)
class MachineCheck:
    """The result of one check of the machine.

    Attributes:
        name: What is checked, in a word or two.
        detail: What was found, or what is wrong.
        error: The failure of the check; None where all is well.
    """

    name: str
    detail: str
    error: DagflowError | None = None


def checked(name: str, look: Callable[[], str]) -> MachineCheck:
    """The result of a check, which returns what it found, or raises what is wrong."""
    try:
        return MachineCheck(name, look())
    except DagflowError as error:
        return MachineCheck(name, error.message, error)
    except OSError as error:
        failure = DagflowError(f"{error.filename or 'the system'}: {error.strerror or error}")
        return MachineCheck(name, failure.message, failure)


def machine_checks() -> Iterator[MachineCheck]:
    yield checked("python", lambda: f"{platform.python_version()} in {os.path.dirname(os.__file__)}")
    yield checked("packages", _packages)
    yield checked("java", lambda: use_java(dict(os.environ)))
    yield checked("open files", _open_files)
    yield checked("temporary files", lambda: free_space(Path(tempfile.gettempdir()), "TMPDIR names another place"))


def _packages() -> str:
    needed = {**NEEDED, "pyspark": SPARK_VERSION}
    found = {name: _version(name) for name in needed}
    wrong = [
        f"{name} {found[name] or 'is not there'}, and {least} or newer is needed"
        for name, least in needed.items()
        if version_numbers(found[name]) < version_numbers(least)
    ]
    spark = found["pyspark"]
    if spark and version_numbers(spark)[:2] > version_numbers(SPARK_VERSION):
        wrong.append(f"pyspark {spark}, and {SPARK_VERSION} is needed")
    if wrong:
        raise DagflowError("; ".join(wrong), hint="install dagflow again: pip install --upgrade dagflow")
    lacking = [name for name in OPTIONAL if not _version(name)]
    more = f"; not there, and needed for some files or stores only: {', '.join(lacking)}" if lacking else ""
    return ", ".join(f"{name} {found[name]}" for name in ("pyspark", "pyarrow", "numpy")) + more


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return ""


def _open_files() -> str:
    require_open_files()
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    return "no limit" if limit == resource.RLIM_INFINITY else f"{limit:,} in a process"


def free_space(directory: Path, advice: str) -> str:
    usage = shutil.disk_usage(directory)
    free = f"{usage.free / (1 << 30):,.1f} GiB free in {directory}"
    if usage.free < LEAST_FREE_BYTES:
        raise DagflowError(f"only {free}", hint=f"free some space there; {advice}")
    return free
