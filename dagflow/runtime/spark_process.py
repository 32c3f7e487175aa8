"""Spark's Java process: how it is started, what it may leave to others to see, and how it ends without a trace."""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

from dagflow.runtime.java_process import END_S, JavaProcessOptions
from dagflow.runtime.process_log import ProcessLog
from dagflow.runtime.scratch import SHORT_PLACES, Scratch, sweep
from dagflow.runtime.start_checks import require_open_files, require_space, unwritable_log
from dagflow.runtime.start_end import ended_with_run

_NUMPY_CONVERTERS = NumpyArrayConverter, NumpyScalarConverter

_SOCKET_PATH_BYTES = 64
"""How long the path of a directory for sockets may be: the system takes 107 bytes, and PySpark's names have 42."""

_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
_SOCKETS = "spark.python.unix.domain.socket.dir"


class SparkProcess:
    """A Java process for one Spark context, with a directory of its own for all temporary files.

    Guarantee: no other user of the machine can enter that directory, in which blocks, sockets and settings lie; and
    no setting is part of the command line, which everybody can read.

    Args:
        settings: Spark's settings that hold before the context is made.
        log: Where the process and the Python workers write; None leaves them this process's stderr.
        must_stop: Whether the run shall stop, and its start be given up.

    Raises:
        RunStoppedError: The run shall stop.
        DagflowError: The machine lacks something that it needs.
        OSError: It could not be started.
        PySparkException: It ended at once.
    """

    def __init__(
        self, settings: Mapping[str, str], log: Path | None, must_stop: Callable[[], bool] = lambda: False
    ) -> None:
        self._scratches: list[Scratch] = []
        require_open_files()
        self._log = None if log is None else _log_at(log)
        self._gateway: Any = None
        self._owner = os.getpid()
        atexit.register(self.end)
        sweep()
        try:
            self._scratch = self._scratch_in(tempfile.gettempdir())
            require_space(self._scratch)
            with ended_with_run(must_stop, self.pid_file):
                self._gateway = self._launched(settings)
        except BaseException:
            self.end()
            raise
        # The converters of NumPy values import pandas where it is installed, which takes 0.5 s and 36 MiB; dagflow
        # sends the JVM no such values.
        client = self._gateway._gateway_client
        client.converters = [each for each in client.converters if not isinstance(each, _NUMPY_CONVERTERS)]

    @property
    def pid_file(self) -> Path:
        """Where the process has written its id."""
        return self._scratch / "pid"

    @property
    def gateway(self) -> Any:
        """PySpark's connection to it."""
        return self._gateway

    def _scratch_in(self, parent: str) -> Path:
        self._scratches.append(Scratch(parent))
        return self._scratches[-1].path

    def _launched(self, settings: Mapping[str, str]) -> Any:
        file = self._scratch / "spark.properties"
        file.write_text("".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in settings.items()), "utf-8")
        # Java keeps its counters in /tmp, whatever it is told, where each of them is a file of its own.
        options = [f"-Djava.io.tmpdir={self._scratch}", "-XX:-UsePerfData"]
        environ = {
            "TMPDIR": str(self._scratch),
            "PYSPARK_SUBMIT_ARGS": f"--properties-file {shlex.quote(str(file))} --load-spark-defaults "
            + os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"),
            "SPARK_SUBMIT_OPTS": f"{shlex.join(options)} {os.environ.get('SPARK_SUBMIT_OPTS', '')}",
        }
        if places := os.environ.get(_LOCAL_DIRS):
            environ[_LOCAL_DIRS] = self._inside(places)
        popen = JavaProcessOptions(self.pid_file)
        if self._log is not None:
            popen.update(stdout=self._log.descriptor, stderr=self._log.descriptor)
        try:
            with _temporary_files_in(self._scratch, environ):
                return launch_gateway(None, popen)  # type: ignore[no-untyped-call]  # pyspark leaves it untyped
        finally:
            if self._log is not None:
                os.close(self._log.descriptor)

    def _inside(self, places: str) -> str:
        parents = [place.strip() for place in places.split(",") if place.strip()]
        sweep(*parents)
        return ",".join(str(self._scratch_in(parent)) for parent in parents)

    def local_settings(self, found: Mapping[str, str]) -> dict[str, str]:
        """Where the context keeps its sockets, and its blocks where that is not the directory for temporary files.

        Args:
            found: The settings as Spark has read them, from all of its files.

        Raises:
            OSError: A directory that a setting names cannot be written to.
        """
        settings = {}
        if places := found.get("spark.local.dir"):
            settings["spark.local.dir"] = self._inside(places)
        if not found.get(_SOCKETS):
            settings[_SOCKETS] = str(self._socket_directory())
        return settings

    def _socket_directory(self) -> Path:
        if len(os.fsencode(self._scratch)) <= _SOCKET_PATH_BYTES:
            return self._scratch
        place = next(place for place in SHORT_PLACES if os.access(place, os.W_OK))
        return self._scratch_in(place)

    def end(self) -> None:
        """End the process, and remove its temporary files; a second call does nothing, nor does one in a fork."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.end)
        gateway, self._gateway = self._gateway, None
        if gateway is not None:
            if SparkContext._gateway is gateway:
                # The next context gets a process of its own.
                SparkContext._gateway = SparkContext._jvm = None
            with contextlib.suppress(Py4JError, OSError):
                gateway.shutdown()
            gateway.proc.stdin.close()
            try:
                gateway.proc.wait(END_S)
            except subprocess.TimeoutExpired:
                gateway.proc.kill()
                gateway.proc.wait()
        if self._log is not None:
            self._log.wait(END_S)
        for scratch in self._scratches:
            scratch.close()
        self._scratches.clear()


def _log_at(path: Path) -> ProcessLog:
    try:
        return ProcessLog(path)
    except OSError as error:
        raise unwritable_log(error, path) from error


def _escaped(text: str) -> str:
    """Text as a key or a value of a Java properties file."""
    return "".join(f"\\u{ord(each):04x}" if each in "\\=:#! \t\n\r\f" else each for each in text)


@contextlib.contextmanager
def _temporary_files_in(directory: Path, environ: Mapping[str, str]) -> Iterator[None]:
    """Have this process make temporary files in a directory, and start others with more variables."""
    before, place = {name: os.environ.get(name) for name in environ}, tempfile.tempdir
    os.environ.update(environ)
    tempfile.tempdir = str(directory)
    try:
        yield
    finally:
        tempfile.tempdir = place
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
