"""Starts and stops a Spark context, and sends Python sources to its executors."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shlex
import sys
import tempfile
import threading
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyspark.util
from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkConf, SparkContext
from pyspark.accumulators import AccumulatorTCPServer, AccumulatorUnixServer
from pyspark.errors import PySparkException
from pyspark.java_gateway import launch_gateway
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from dagflow.errors import DagflowError
from dagflow.runtime.class_archive import archive_options, make_archive
from dagflow.runtime.java import use_java
from dagflow.runtime.java_process import JavaProcessOptions
from dagflow.runtime.spark_errors import first_line, translating
from dagflow.runtime.spark_settings import JAVA_OPTIONS, LOCAL_JAVA, settings_for
from dagflow.spec.spark_master import SparkMaster

_NUMPY_CONVERTERS = NumpyArrayConverter, NumpyScalarConverter

# dagflow uses no accumulators, and the job that fails reports the end of the JVM. PySpark would print a traceback as
# well, in these servers and where pickling asks the JVM something.
for _server in (AccumulatorTCPServer, AccumulatorUnixServer):
    _server.handle_error = lambda *_: None  # type: ignore[method-assign]  # the hook that socketserver offers
pyspark.util.print_exec = lambda stream: None


def start_context(app: str, master: str, conf: Mapping[str, str], log: Path | None = None) -> SparkContext:
    """Start Spark with the settings that suit dagflow.

    Args:
        app: Name for Spark's own displays.
        master: A Spark master URL.
        conf: Settings that take precedence over dagflow's.
        log: Where the JVM and the Python workers write; None leaves them this process's stderr.

    Raises:
        DagflowError: Java or Spark could not be started.
    """
    cores = SparkMaster.parse(master).local_tasks
    settings = settings_for(master, conf)
    if cores:
        # Written like this, local mode runs a failed task again, as a cluster does.
        master = f"local[{cores},4]"
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    if "spark.pyspark.python" in conf:
        # PySpark reads this setting in spark-submit only.
        os.environ["PYSPARK_PYTHON"] = conf["spark.pyspark.python"]
    # Unset, workers would run whatever python3 is first on PATH.
    python = os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    java_home = use_java()
    if cores:
        settings.setdefault(JAVA_OPTIONS, shlex.join([*LOCAL_JAVA, *archive_options(java_home)]))
        if python == sys.executable:  # another Python may have no dagflow
            settings.setdefault("spark.python.daemon.module", "dagflow.runtime.daemon")
    spark_conf = SparkConf().setMaster(master).setAppName(f"dagflow {app}")
    for key, value in settings.items():
        spark_conf.set(key, value)
    try:
        with contextlib.ExitStack() as stack:
            output: Any = None
            if log is not None:
                log.parent.mkdir(parents=True, exist_ok=True)
                output = stack.enter_context(log.open("ab"))
            process = JavaProcessOptions({"stdout": output, "stderr": output} if output else {})
            gateway = launch_gateway(spark_conf, process)  # type: ignore[no-untyped-call]  # pyspark leaves it untyped
            # The converters of NumPy values import pandas where it is installed, which takes 0.5 s and 36 MiB; dagflow
            # sends the JVM no such values.
            client = gateway._gateway_client
            client.converters = [each for each in client.converters if not isinstance(each, _NUMPY_CONVERTERS)]
            return SparkContext(conf=spark_conf, gateway=gateway)
    except (PySparkException, Py4JError, OSError, RuntimeError) as error:
        where = f"; see {log}" if log is not None else ""
        raise DagflowError(f"Spark did not start on {master}: {first_line(error)}{where}") from error


def stop_context(context: SparkContext) -> None:
    """Stop Spark, without the second that PySpark waits for the server of its accumulators."""
    opened: Any = context
    server, opened._accumulatorServer = opened._accumulatorServer, None
    context.stop()
    if server is None:  # stopped before
        return
    if isinstance(server, AccumulatorUnixServer):
        # Removed here, because this process may end before the thread that would remove it.
        Path(str(server.server_address)).unlink(missing_ok=True)
    threading.Thread(target=server.shutdown, daemon=True).start()


def send_sources(context: SparkContext, paths: Iterable[Path]) -> None:
    """Let executors import modules that are not installed there.

    Args:
        context: The context of the executors.
        paths: Module files and package directories; each is importable by its own name.
    """
    context.addPyFile(str(package_zip(paths)))


def package_zip(paths: Iterable[Path]) -> Path:
    """A zip file in the temporary directory, named by its content, so that the same sources are zipped once."""
    digest = hashlib.sha256()
    members = [member for path in paths for member in _sources(path)]
    for file, name in members:
        digest.update(name.encode() + b"\0" + file.read_bytes() + b"\0")
    target = Path(tempfile.gettempdir()) / f"dagflow_{digest.hexdigest()[:16]}.zip"
    if not target.exists():
        draft = tempfile.NamedTemporaryFile(dir=target.parent, suffix=".zip", delete=False)  # noqa: SIM115  # renamed below
        with draft, zipfile.ZipFile(draft, "w", zipfile.ZIP_DEFLATED) as archive:
            for file, name in members:
                archive.writestr(zipfile.ZipInfo(name), file.read_bytes())
        Path(draft.name).replace(target)
    return target


def _sources(path: Path) -> Iterator[tuple[Path, str]]:
    if path.is_file():
        yield path, path.name
        return
    for file in sorted(path.rglob("*")):
        if file.is_file() and "__pycache__" not in file.parts:
            yield file, str(Path(path.name) / file.relative_to(path))


def keep_classes() -> Path:
    """Make local runs start faster from now on: keep an archive of the classes that a small Spark job loads.

    Returns:
        The archive.

    Raises:
        DagflowError: Spark did not start, or the archive was not made.
    """
    return make_archive(use_java(), _run_once)


def _run_once(option: str, log: Path) -> str:
    """Run a small job in a Java process with one more option, until the process has ended; returns its class path."""
    context: Any = start_context("classes", "local[2]", {JAVA_OPTIONS: shlex.join([*LOCAL_JAVA, option])}, log)
    with translating("a job for the class archive"):
        pairs = context.parallelize(range(8), 2).map(lambda number: (number % 3, number))
        pairs.repartitionAndSortWithinPartitions(2).collect()
        class_path = str(context._jvm.System.getProperty("java.class.path"))
    gateway = context._gateway
    stop_context(context)
    gateway.shutdown()
    gateway.proc.stdin.close()
    gateway.proc.wait()
    return class_path
