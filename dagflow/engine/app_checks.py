"""Checks of `dagflow doctor`: what a machine must have, and what an app needs of its locations and its cluster."""

from __future__ import annotations

import functools
import os
import platform
import resource
import shutil
import socket
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path

from dagflow.api.control import ControlOperator
from dagflow.api.operator import Operator
from dagflow.api.transactions import Target, TransactionalSink
from dagflow.engine.live_run import StopRequest
from dagflow.engine.preparation import LocationCollector
from dagflow.engine.preview import preview
from dagflow.engine.preview_chain import PreviewOptions
from dagflow.engine.run_setup import RunOptions, in_session, lazy_runtime
from dagflow.errors import DagflowError, MissingError
from dagflow.execution.messages import Program
from dagflow.frozen import frozen
from dagflow.plan.accumulators import wants_to_follow
from dagflow.plan.logical import LogicalPlan
from dagflow.plan.placement import PlacedApp
from dagflow.runtime.connect import connect_class
from dagflow.runtime.java import use_java
from dagflow.runtime.probe import NEEDED, RunLocations
from dagflow.runtime.start_checks import remote_url, require_open_files, require_version, version_numbers
from dagflow.spec.spark_master import SparkMaster
from dagflow.storage.context import StorageContext
from dagflow.storage.location import absolute, join, parent, redacted
from dagflow.storage.pending import pending_tag

_MOST_SECONDS = 5.0
"""How far clocks may be apart: files are distinguished by the times that stores give them."""

_CONNECT_S = 5.0

_NAME = ".dagflow-doctor"
_PROBE = b"dagflow doctor"


def app_checks(app: LogicalPlan, *, starts_spark: bool = True) -> Iterator[MachineCheck]:
    """The checks of an app, one after the other; no data is changed, and test files are removed again."""
    storage = app.attributes.storage_context()
    collector = LocationCollector(storage)
    yield checked("operators", lambda: _prepared(app, collector))
    for name, operator in app.instances.items():
        if isinstance(operator, TransactionalSink):
            yield checked(f"table of {name}", functools.partial(_table, name, operator, collector))
    for name in _heads(app):
        yield checked(f"input of {name}", functools.partial(_input, app, name))
    checkpoint = absolute(app.attributes.checkpoint)
    differences_s: list[float] = []
    for what, url in (("checkpoint", checkpoint), *(("output", url) for url in sorted(collector.outputs))):
        yield checked(what, functools.partial(_writable, storage, url, differences_s))
    for name, operator in app.instances.items():
        if isinstance(operator, ControlOperator) and operator.removes_input:
            yield checked(f"source files of {name}", functools.partial(_removable, app, storage, differences_s))
    yield checked("clock", lambda: _clock(differences_s))
    if starts_spark:
        yield checked("executors", lambda: _executors(app, collector))


def _prepared(app: LogicalPlan, collector: LocationCollector) -> str:
    others = {name: each for name, each in app.instances.items() if not isinstance(each, TransactionalSink)}
    collector.prepare(others)
    return f"{len(others)} are ready"


def _table(name: str, operator: TransactionalSink, collector: LocationCollector) -> str:
    """Ask the target, or its catalog, what it has."""
    if isinstance(operator, Operator):
        collector.prepare({name: operator})
    target = operator.transaction_target(collector.storage)
    return "needs no transactions" if not isinstance(target, Target) else f"{target.name} can be reached"


def _heads(app: LogicalPlan) -> list[str]:
    given = {edge.target.operator for edge in app.edges if app.operators[edge.source.operator].is_control}
    return [
        name
        for name, node in app.operators.items()
        if name in given
        and not node.is_control
        and any(port.carries_records for port in node.operator.output_ports.values())
    ]


def _input(app: LogicalPlan, head: str) -> str:
    """List the input, and read the first record."""
    found = preview(app, PreviewOptions(at=head, records=1, read_bytes=1))
    if isinstance(found.error, MissingError) and wants_to_follow(app):
        return f"{found.error.message}; the run waits for it"
    if found.error is not None:
        raise found.error
    if not found.files:
        return "can be listed, and has no records"
    return f"can be listed and read, such as {found.files[0]}"


def _removable(app: LogicalPlan, storage: StorageContext, differences_s: list[float]) -> str:
    """Check that source files can be removed, with test files beside the first file of each input."""
    read = [preview(app, PreviewOptions(at=head, records=1, read_bytes=1)).files for head in _heads(app)]
    directories = sorted({parent(files[0]) for files in read if files})
    for directory in directories:
        _writable(storage, directory, differences_s)
    return f"files beside them can be deleted, in {', '.join(directories)}" if directories else "there are none"


def _writable(storage: StorageContext, url: str, differences_s: list[float]) -> str:
    """Create, publish, read, list and delete below a location, in a directory of its own."""
    if not storage.backend(url).is_local:
        _try(storage, join(url, f"{_NAME}-{uuid.uuid4().hex[:8]}"), differences_s)
        return f"{redacted(url)}: objects can be created, listed, read and deleted"
    existing = _existing(url)
    directory = tempfile.mkdtemp(prefix=f"{_NAME}-", dir=existing)
    try:
        _try(storage, directory, differences_s)
    finally:
        shutil.rmtree(directory, ignore_errors=True)
    return f"{url}: files can be created, listed, read and deleted, {free_space(existing, 'or write elsewhere')}"


def _existing(url: str) -> Path:
    path = Path(url)
    while not os.path.lexists(path) and path != path.parent:
        path = path.parent
    if not path.is_dir():
        raise DagflowError(f"{path} is no directory", hint=f"{url} cannot be made there; name another place")
    return path


def _try(storage: StorageContext, url: str, differences_s: list[float]) -> None:
    """Use a store as a journal and a writer do."""
    objects = storage.objects(join(url, "journal"))
    objects.probe()
    objects.create("log/1", _PROBE)
    try:
        if list(objects.list("log/")) != ["log/1"] or objects.read("log/1") != _PROBE:
            raise DagflowError(f"{redacted(url)}: the created object cannot be listed and read")
    finally:
        objects.delete(["log/1"])
    published = join(url, "published")
    writer = storage.open_pending(published, tag=pending_tag("doctor", 0))
    writer.write(_PROBE)
    writer.end()
    backend = storage.backend(published)
    backend.pending.publish(writer.close(records=1))
    if mtime_ns := storage.stat(published).mtime_ns:
        differences_s.append(abs(time.time_ns() - mtime_ns) / 1e9)
    backend.files.remove(published)


def _clock(differences_s: list[float]) -> str:
    if not differences_s:
        return "no store reports its time"
    if (most_s := max(differences_s)) > _MOST_SECONDS:
        raise DagflowError(
            f"a store's clock and that of this machine are {most_s:,.0f} s apart",
            hint="set them, as with NTP: settle_millis and retain_seen compare their times",
        )
    return f"{most_s:.1f} s from that of the stores"


def _require_reachable(master: str) -> None:
    """Refuse a master of Spark's own that cannot be reached, for which Spark would wait a minute and more."""
    failures = []
    for address in master.removeprefix("spark://").split(",") if master.startswith("spark://") else ():
        host, _, port = address.rpartition(":")
        try:
            socket.create_connection((host, int(port)), timeout=_CONNECT_S).close()
            return
        except (OSError, ValueError) as error:
            failures.append(f"{address} cannot be reached: {error}")
    if failures:
        raise DagflowError(f"the master {', '.join(failures)}", hint="start it, or give another one as `master`")


def _executors(app: LogicalPlan, collector: LocationCollector) -> str:
    """Start Spark, which checks the executors of a cluster itself."""
    placed = PlacedApp.of(app, collector.storage)
    program = Program.of(app.name, placed.plan, placed.operators, placed.storage, app.attributes.durability)
    options = in_session(RunOptions(), None)
    master = SparkMaster.parse(options.master or app.attributes.master)
    _require_reachable(master.url)
    is_local = master.local_tasks is not None
    # On this machine the locations were tried before.
    locations = (
        RunLocations() if is_local else RunLocations(dict(sorted(collector.outputs.items())), tuple(collector.inputs))
    )
    runtime = lazy_runtime(app, program, options, locations, StopRequest())
    try:
        tasks = runtime.get().parallelism
        return f"Spark starts on {master.url}, and runs {tasks} tasks at the same time"
    finally:
        runtime.close()


LEAST_FREE_BYTES = 256 << 20
"""Free space below which a disk is full in no time."""

OPTIONAL = ("lz4", "python-snappy", "backports.zstd", "s3fs", "obstore", "gcsfs", "adlfs", "hdfs-native")
"""Packages for compressions and stores; code that needs a missing one says so when it runs."""


@frozen
class MachineCheck:
    """The result of one check of the machine."""

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
    if remote_url():
        yield checked("spark connect", _connect_packages)
    else:
        yield checked("java", lambda: use_java(dict(os.environ)))
    yield checked("open files", _open_files)
    yield checked("temporary files", lambda: free_space(Path(tempfile.gettempdir()), "TMPDIR names another place"))


def _packages() -> str:
    spark = require_version()
    found = {name: _version(name) for name in NEEDED}
    wrong = [
        f"{name} {found[name] or 'is not there'}, and {least} or newer is needed"
        for name, least in NEEDED.items()
        if version_numbers(found[name]) < version_numbers(least)
    ]
    if wrong:
        raise DagflowError("; ".join(wrong), hint="install dagflow again: pip install --upgrade dagflow")
    lacking = [name for name in OPTIONAL if not _version(name)]
    more = f"; not there, and needed for some files or stores only: {', '.join(lacking)}" if lacking else ""
    return f"pyspark {spark}, pyarrow {found['pyarrow']}, numpy {found['numpy']}{more}"


def _connect_packages() -> str:
    connect_class()
    return f"SPARK_REMOTE is {remote_url()}, and its packages are here"


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
