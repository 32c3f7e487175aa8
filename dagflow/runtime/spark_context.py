"""Starts and stops a Spark context, and lets its tasks import Python sources."""

from __future__ import annotations

import contextlib
import io
import os
import pickle
import shlex
import shutil
import sys
import tempfile
import threading
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from pathlib import Path
from pickle import PicklingError
from typing import Any

import pyspark.util
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]  # ships no types
from pyspark import Broadcast, SparkConf, SparkContext, cloudpickle
from pyspark.errors import PySparkException

from dagflow.errors import DagflowError, ProcessEndedError
from dagflow.runtime.java import make_archive, use_java
from dagflow.runtime.module_files import linked_sources, package_zip
from dagflow.runtime.spark_jobs import is_cancelled, job_failure
from dagflow.runtime.spark_process import OUT_OF_MEMORY_END, JavaEndedError, SparkProcess, variables_set
from dagflow.runtime.spark_settings import JAVA_OPTIONS, LOCAL_JAVA, process_settings, protection, require_secret
from dagflow.runtime.start_checks import reason_in, require_no_context
from dagflow.spec.spark_master import SparkMaster


def first_line(error: BaseException) -> str:
    """The line of an error's message that says what happened; the error's type if it has no message."""
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if isinstance(error, Py4JJavaError) and len(lines) > 1:
        return lines[1].removeprefix(": ")  # the first one names the call
    return lines[0]


@contextlib.contextmanager
def translating(work: str) -> Iterator[None]:
    """Turn an error of Spark, or of py4j after the JVM has ended, into one line that names the work under way."""
    try:
        yield
    except Exception as error:
        raise translated(error, work) from error


_SHARE = "a multiple of the largest record that is exchanged"
_KILLED = (
    f"it was killed, or it lacked memory (spark.driver.memory), of which it takes {_SHARE}; Spark's log, in "
    ".dagflow or of the session, may say more"
)


def translated(error: Exception, work: str, how_java_ended: Callable[[], str] = str) -> Exception:
    if isinstance(error, PicklingError) and isinstance(error.__context__, (Py4JError, ConnectionError)):
        error = error.__context__  # pickling called the JVM
    text = str(error)
    if is_cancelled(text):
        return CancelledError(f"{work} was abandoned")
    if isinstance(error, DagflowError):
        return error
    # Java also sends that message while it shuts down in an orderly way.
    is_gone = isinstance(error, (Py4JError, ConnectionError)) and not isinstance(error, Py4JJavaError)
    if is_gone or "cancelled because SparkContext was shut down" in text:
        end = how_java_ended()
        message = f"{work}: Spark's Java process has ended{f': {end}' if end else ''}"
        if end == OUT_OF_MEMORY_END:
            more = f"give it more, such as --conf spark.driver.memory=4g; it takes {_SHARE}"
            return DagflowError(message, hint=more)
        return ProcessEndedError(message, hint=_KILLED)
    return job_failure(error, work, first_line(error))


def java_for(
    app: str, master: str, conf: Mapping[str, str], log: Path | None, ahead: SparkProcess | None = None
) -> SparkProcess:
    """A Java process for Spark with dagflow's settings, which may still be starting."""
    settings = process_settings(app, master, conf)
    if ahead is not None and ahead.settings != settings:
        ahead.end()
        ahead = None
    with _start_errors(master, log), contextlib.ExitStack() as undo:
        process = ahead or SparkProcess(settings, has_log=log is not None)
        undo.callback(process.end)
        if log is not None:
            process.log_to(log)
        undo.pop_all()
    return process


def start_context(
    app: str, master: str, conf: Mapping[str, str], log: Path | None = None, process: SparkProcess | None = None
) -> SparkContext:
    process = process or java_for(app, master, conf, log)
    with _start_errors(master, log), contextlib.ExitStack() as undo:
        undo.callback(process.end)
        context = _context(process)
        undo.pop_all()
    opened: Any = context
    opened.process = process  # for stop_context
    # dagflow uses no accumulators, and their server would print a traceback at the end of the JVM.
    opened._accumulatorServer.handle_error = lambda *_: None
    # The same where pickling calls the JVM. The job that fails reports its end.
    opened.print_exec, pyspark.util.print_exec = pyspark.util.print_exec, lambda stream: None
    return context


@contextlib.contextmanager
def _start_errors(master: str, log: Path | None) -> Iterator[None]:
    try:
        yield
    except DagflowError:
        raise
    except (PySparkException, Py4JError, OSError, RuntimeError, ValueError) as error:
        if isinstance(error, ValueError):
            require_no_context()  # another thread of this process may have started one meanwhile
        cause = reason_in(log) if isinstance(error, JavaEndedError) else ""
        reason = f"Java ended at once: {cause}" if cause else first_line(error)
        where = f"; see {log}" if log is not None else ""
        raise DagflowError(f"Spark did not start on {master}: {reason}{where}") from error


def _context(process: SparkProcess) -> SparkContext:
    settings = process.settings
    # Settings that Spark has read from its own files count as well, and only the Java process knows them.
    spark_conf = dict(SparkConf(_jvm=process.gateway.jvm).getAll())
    require_secret(settings["spark.master"], spark_conf)
    conf = SparkConf()
    for key, value in {**settings, **process.local_settings(spark_conf), **protection(spark_conf)}.items():
        conf.set(key, value)
    with variables_set(process.variables):
        return SparkContext(conf=conf, gateway=process.gateway)


def submitted_context() -> SparkContext:
    """The context of a script that spark-submit has started, with the master and the settings given there."""
    with translating("the start of Spark"):
        return SparkContext.getOrCreate()


def stop_context(context: SparkContext) -> None:
    """Stop Spark, its Java process and its temporary files; a second call does nothing."""
    opened: Any = context
    # On its own, PySpark would wait a second for its accumulator server.
    server, opened._accumulatorServer = opened._accumulatorServer, None
    try:
        with warnings.catch_warnings():
            # PySpark warns if the Java process has ended, which the failed job has reported.
            warnings.simplefilter("ignore", RuntimeWarning)
            context.stop()
    finally:
        pyspark.util.print_exec = opened.print_exec
        if server is not None:
            threading.Thread(target=server.shutdown, daemon=True).start()
        opened.process.end()


def link_sources(context: SparkContext, paths: Iterable[Path]) -> None:
    opened: Any = context
    # Not from the directories around them: these may contain modules with the names of installed ones.
    opened._python_includes.append(str(linked_sources(paths, Path(opened._temp_dir))))


class SentSources:
    """Modules that executors need not have, and a view of a context whose tasks get them.

    The context itself stays as it is: it gets no files, and its own tasks run in other Python processes.

    Attributes:
        context: The view.
    """

    def __init__(self, context: SparkContext, paths: Iterable[Path]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            archive = package_zip([*paths, *_in_wheels(Path(directory, "wheels"))], Path(directory))
            self._name, content = archive.stem, archive.read_bytes()
        view: Any = object.__new__(SparkContext)
        # Spark keeps the Python processes of different variables apart, so that no module of one app is another's.
        vars(view).update(vars(context), environment={**context.environment, "DAGFLOW_SOURCES": self._name})
        is_named = context.pythonExec != "python3" or "PYSPARK_PYTHON" in os.environ
        if SparkMaster.parse(str(context.master)).local_tasks and not is_named:
            view.pythonExec = sys.executable  # by default the first python3 on PATH, which may lack packages
        self.context: SparkContext = view
        self._archive: Broadcast[bytes] = view.broadcast(content)

    def bring(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that can be sent to a process that lacks its modules."""
        return _Bringing(function, self._archive, self._name)

    def close(self) -> None:
        self._archive.destroy()


def _in_wheels(directory: Path) -> list[Path]:
    """The modules of wheels that this process imports from; Spark's executors import none of --py-files."""
    directory.mkdir()
    for entry in sys.path:
        if entry.endswith(".whl") and os.path.isfile(entry):
            with zipfile.ZipFile(entry) as wheel:
                wheel.extractall(directory)
    return sorted(directory.iterdir())


class _Bringing:
    """A function that is pickled with what makes its modules importable."""

    # Without a __dict__, which PySpark would copy to functions that it wraps around this one.
    __slots__ = ("_archive", "_function", "_name")

    def __init__(self, function: Callable[..., Any], archive: Broadcast[bytes], name: str) -> None:
        self._function, self._archive, self._name = function, archive, name

    def __call__(self, *arguments: Any) -> Any:
        return self._function(*arguments)

    def __reduce__(self) -> tuple[Any, ...]:
        return _loader(), (self._archive, self._name, cloudpickle.dumps(self._function))  # type: ignore[no-untyped-call]  # pyspark leaves it untyped


def _loader() -> Callable[[Broadcast[bytes], str, bytes], Any]:
    """A function that is pickled as its code, because it is nested: nothing of dagflow is imported before it runs."""

    def load(archive: Broadcast[bytes], name: str, pickled: bytes) -> Any:
        # A directory of the executor, which Spark removes with it. Modules in an archive could neither read files
        # beside them nor be machine code.
        parent = os.path.abspath(os.environ["SPARK_LOCAL_DIRS"].split(",")[0])
        directory = os.path.join(parent, name)
        if directory not in sys.path:
            if not os.path.isdir(directory):
                draft = tempfile.mkdtemp(dir=parent)
                with zipfile.ZipFile(io.BytesIO(archive.value)) as packed:
                    packed.extractall(draft)
                try:
                    os.rename(draft, directory)
                except OSError:  # another process of the executor was first
                    shutil.rmtree(draft)
            sys.path.insert(0, directory)
        return pickle.loads(pickled)

    return load


def keep_classes() -> Path:
    """Make later local runs start faster: keep an archive of the classes that a small Spark job loads."""
    return make_archive(use_java(), _run_once)


def _run_once(option: str, log: Path) -> str:
    """Run a small job in a Java process with one more option, until the process has ended; returns its class path."""
    context: Any = start_context("classes", "local[2]", {JAVA_OPTIONS: shlex.join([*LOCAL_JAVA, option])}, log)
    with translating("a job for the class archive"):
        pairs = context.parallelize(range(8), 2).map(lambda number: (number % 3, number))
        pairs.partitionBy(2).collect()
        class_path = str(context._jvm.System.getProperty("java.class.path"))
    stop_context(context)
    return class_path
