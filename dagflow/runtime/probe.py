"""Checks before the first window that the executors of a cluster can run the app."""

from __future__ import annotations

import itertools
import os
import pickle
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, field
from typing import Any

import msgspec

from dagflow.errors import CredentialsError, DagflowError, StorageError
from dagflow.execution.messages import Program
from dagflow.frozen import frozen, mutable
from dagflow.runtime.start_checks import version_numbers
from dagflow.storage.context import StorageContext
from dagflow.storage.location import redacted
from dagflow.storage.pending import PendingFile
from dagflow.storage.publishing import discard_all

NEEDED = {
    "fsspec": "2024.6",
    "google-re2": "1.1",
    "isal": "1.7",
    "msgspec": "0.18",
    "numpy": "2.0",
    "pyarrow": "17",
    "pydantic": "2.7",
    "typing_extensions": "4.12",
}
"""The oldest versions of the packages that tasks import; dagflow, operators and the app's modules are sent along."""

_MODULE_BY_PACKAGE = {"google-re2": "re2"}
"""The module of each of them that is not called like its package."""

HOLD_S = 0.2
"""A probe keeps its slot for this long, so that the next one goes to another executor."""

_MOST_LEVELS = 8
_LOOKED_AT = 100

_INSTALL = (
    "install the same on all hosts and name their interpreter in the environment variable PYSPARK_PYTHON, or ship "
    "packages with --conf spark.archives=deps.tgz#deps --conf spark.executorEnv.PYTHONPATH=deps"
)


@frozen
class RunLocations:
    """The directories that a run writes into and the files and directories that it reads, for executors to check.

    Attributes:
        outputs: Which operator publishes into each directory.
    """

    outputs: Mapping[str, str] = field(default_factory=dict)
    inputs: Sequence[str] = ()
    tag: str = "probe"


@mutable
class ExecutorReport:
    """The result of checking one executor.

    Attributes:
        directory: Its working directory, which no other executor has.
        versions: Versions of the needed packages; None for a missing one, "" for one that does not report a version.
        error: Why the app's code cannot be loaded, an output location cannot be written to, or credentials are not
            accepted; "" where there is no error.
        missing: Local inputs that do not exist there.
        written: Pending files that it wrote, one for each output location.
    """

    host: str
    directory: str
    python: str
    versions: dict[str, str | None]
    error: str = ""
    missing: list[str] = field(default_factory=list)
    written: list[PendingFile] = field(default_factory=list)

    def problem(self, storage: StorageContext) -> DagflowError | None:
        where = f"executor on {self.host} with Python {self.python}"
        absent = sorted(name for name, version in self.versions.items() if version is None)
        old = sorted(
            f"{name} {version}, which needs to be {NEEDED[name]} or newer"
            for name, version in self.versions.items()
            if version and version_numbers(version) < version_numbers(NEEDED[name])
        )
        if absent:
            return DagflowError(f"{where}: cannot import {', '.join(absent)}", hint=_INSTALL)
        if old:
            return DagflowError(f"{where}: has {'; '.join(old)}", hint=_INSTALL)
        if self.error:
            return DagflowError(f"{where}: {self.error}", hint=_INSTALL if "ModuleNotFound" in self.error else "")
        if self.missing:
            return DagflowError(
                f"{where}: the input {self.missing[0]} is not there, though it is on the driver's host",
                hint="local paths need a file system that all hosts share, at the same place; or use an object store",
            )
        return self._unseen_output(storage)

    def _unseen_output(self, storage: StorageContext) -> DagflowError | None:
        for file in self.written:
            if storage.backend(file.final_url).is_local and not os.path.exists(file.pending_url):
                return DagflowError(
                    f"executor on {self.host}: a file that it writes to {redacted(os.path.dirname(file.final_url))} is "
                    "not seen on the driver's host",
                    hint="local paths need a file system that all hosts share, at the same place; or use an object "
                    "store",
                )
        return None


def _sample(path: str) -> str:
    """A file below a directory: another host may have a directory of the same name, but hardly the same file."""
    for _ in range(_MOST_LEVELS):
        try:
            with os.scandir(path) as entries:
                path = min(itertools.islice(entries, _LOOKED_AT), key=lambda entry: entry.name).path
        except (OSError, ValueError):
            break
    return path


def examiner(
    locations: RunLocations, storage: StorageContext, program: Callable[[], Any]
) -> Callable[[Iterable[Any]], Iterator[dict[str, Any]]]:
    """A function that reports what an executor has; it can be sent to an executor that lacks packages."""
    needed = [(name, _MODULE_BY_PACKAGE.get(name, name)) for name in NEEDED]
    outputs, tag, hold_s = list(locations.outputs), locations.tag, HOLD_S
    module = __name__
    inputs = [_sample(url) for url in locations.inputs if storage.backend(url).is_local]
    # One location is enough to check the credentials of its whole bucket or server.
    remote = [url for url in locations.inputs if not storage.backend(url).is_local]
    inputs += {"/".join(url.split("/", 3)[:3]): url for url in remote}.values()

    def examine(_: Iterable[Any]) -> Iterator[dict[str, Any]]:
        # Imported here, and no name of this module is used: an executor that lacks packages could not load it
        # otherwise.
        import importlib
        import os
        import platform
        import socket
        import time
        from importlib import metadata

        time.sleep(hold_s)
        versions: dict[str, str | None] = {}
        for name, imported in needed:
            try:
                importlib.import_module(imported)
            except Exception:
                versions[name] = None
                continue
            try:
                versions[name] = metadata.version(name)
            except metadata.PackageNotFoundError:
                versions[name] = ""
        report: dict[str, Any] = {
            "directory": os.getcwd(),
            "host": socket.gethostname() + " " + os.environ.get("SPARK_LOCAL_IP", ""),
            "python": platform.python_version(),
            "versions": versions,
        }
        try:
            if None not in versions.values():
                probe = importlib.import_module(module)
                report |= probe.examine_app(program(), inputs, outputs, tag)
        except Exception as error:
            report["error"] = f"{type(error).__name__}: {error}"
        yield report

    return examine


def examine_app(program: Program, inputs: Sequence[str], outputs: Sequence[str], tag: str) -> dict[str, Any]:
    """Load the app's operators and try its locations, on an executor that has all packages.

    Returns:
        The fields `missing` and `written` of an ExecutorReport, as JSON.
    """
    for operator in program.operators.values():
        pickle.loads(operator)
    local = [url for url in inputs if program.storage.backend(url).is_local]
    for url in inputs:
        if url not in local:
            _require_credentials(program.storage, url)
    written = []
    for url in outputs:
        writer = program.storage.open_pending(f"{url}/probe", tag=tag)
        writer.write(b"?")
        written.append(asdict(writer.close(records=0)))
    return {"missing": [url for url in local if not os.path.exists(url)], "written": written}


def _require_credentials(storage: StorageContext, url: str) -> None:
    try:
        storage.stat(url)
    except CredentialsError:
        raise
    except StorageError:
        return  # the driver meets the same error, and reports it once


def check_compatibility(answers: Iterable[dict[str, Any]], storage: StorageContext) -> int:
    """Refuse to start where an executor lacks something; returns how many have reported."""
    reports = msgspec.convert(list(answers), list[ExecutorReport])
    problems = [problem for report in reports if (problem := report.problem(storage)) is not None]
    for report in reports:
        discard_all(storage, report.written)
    if problems:
        raise problems[0]
    return len({(report.host, report.directory) for report in reports})


def incompatibility_of(text: str) -> DagflowError | None:
    """The error for a probe that Spark could not start; None for an unknown message."""
    # Spark 3.5 has no colons, and (3, 12) for 3.12.
    versions = re.search(r"Python in worker has different version:? (.+?) than that in driver:? (\d+\.\d+)", text)
    if versions:
        worker = ".".join(re.findall(r"\d+", versions[1]))
        return DagflowError(
            f"the executors run Python {worker}, the driver runs Python {versions[2]}",
            hint="start dagflow with the Python that the cluster has, or name an interpreter of this version that "
            "is on all hosts in the environment variable PYSPARK_PYTHON",
        )
    lacking = re.search(r"No module named '([\w.]+)'|\[PACKAGE_NOT_INSTALLED\] (\S+ >= \S+)", text)
    if lacking:
        return DagflowError(f"the Python of the executors has no {lacking[1] or lacking[2]}", hint=_INSTALL)
    absent = re.search(r'Cannot run program "([^"]+)"', text)
    if absent:
        return DagflowError(
            f"the executors have no Python at {absent[1]}",
            hint="name an interpreter that is on all hosts in the environment variable PYSPARK_PYTHON",
        )
    return None
