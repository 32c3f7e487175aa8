"""Spark's Java process: how it is started, what other users can see of it, and how it ends without leftovers.

Importing this module takes little time, because the process is started before PySpark is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import shlex
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dagflow.runtime.scratch import SHORT_DIRECTORIES, ProcessLog, Scratch, sweep
from dagflow.runtime.spark_settings import process_variables
from dagflow.runtime.start_checks import installed_spark, require_open_files, require_space, unwritable_log

_SOCKET_PATH_BYTES = 64
"""Bytes that the path of a directory for sockets may have: the system takes 107, and PySpark's names have 42."""

_LOCAL_DIRS = "SPARK_LOCAL_DIRS"
_SOCKETS = "spark.python.unix.domain.socket.dir"

_LOOK_EVERY_S = 0.01
"""Seconds between checks of a process that is starting."""


class JavaEndedError(RuntimeError):
    """Java ended before it was ready."""


class SparkProcess:
    """A Java process for one Spark context, with a directory of its own for all temporary files.

    Guarantee: no other user of the machine can enter that directory, which contains blocks, sockets and settings; and
    no setting is part of the command line, which every user can read.

    Args:
        settings: Spark's settings from before the context is created.
        has_log: Whether the process and the Python workers write to a log, by log_to(), or to this process's stderr.

    Attributes:
        variables: The environment variables that PySpark must see as well while it creates the context.
    """

    def __init__(self, settings: Mapping[str, str], *, has_log: bool) -> None:
        self.settings = dict(settings)
        self.variables = process_variables(settings)
        self._scratches: list[Scratch] = []
        require_open_files()
        self._log = ProcessLog() if has_log else None
        self._process: subprocess.Popen[bytes] | None = None
        self._gateway: Any = None
        self._owner = os.getpid()
        atexit.register(self.end)
        sweep()
        try:
            self._scratch = self._scratch_in(tempfile.gettempdir())
            require_space(self._scratch)
            self._process = self._launched()
        except BaseException:
            self.end()
            raise

    @property
    def gateway(self) -> Any:
        """PySpark's connection to the process; the first use waits until it is ready."""
        if self._gateway is None:
            self._gateway = self._connected(*self._address())
        return self._gateway

    def log_to(self, path: Path) -> None:
        assert self._log is not None
        try:
            self._log.begin(path)
        except OSError as error:
            raise unwritable_log(error, path) from error

    def _scratch_in(self, parent: str) -> Path:
        self._scratches.append(Scratch(parent))
        return self._scratches[-1].path

    def _launched(self) -> subprocess.Popen[bytes]:
        home = os.environ.get("SPARK_HOME") or str(installed_spark())
        file = self._scratch / "spark.properties"
        file.write_bytes(
            _defaults(home)
            + "".join(f"{_escaped(key)}={_escaped(value)}\n" for key, value in self.settings.items()).encode()
        )
        # Java keeps its counters in /tmp, regardless of its settings; there each of them is a file of its own.
        options = [f"-Djava.io.tmpdir={self._scratch}", "-XX:-UsePerfData"]
        environ = {
            **os.environ,
            **self.variables,
            "TMPDIR": str(self._scratch),
            # Otherwise Spark's script starts a Python to find it.
            "SPARK_HOME": home,
            "SPARK_SUBMIT_OPTS": f"{shlex.join(options)} {os.environ.get('SPARK_SUBMIT_OPTS', '')}",
            # PySpark sets these for a process of its own: where the process reports its port and its secret.
            "SPARK_CONNECT_MODE": "0",
            "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._address_file),
        }
        if directories := os.environ.get(_LOCAL_DIRS):
            environ[_LOCAL_DIRS] = self._inside(directories)
        submit = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
        command = [f"{home}/bin/spark-submit", "--properties-file", str(file), *submit]
        log = None if self._log is None else self._log.descriptor
        try:
            # Java ends with the pipe to its standard input, also where this process is killed.
            return subprocess.Popen(
                bound_to_driver(command), env=with_utf8(environ), stdin=subprocess.PIPE, stdout=log, stderr=log
            )
        finally:
            if log is not None:
                os.close(log)

    @property
    def _address_file(self) -> Path:
        return self._scratch / "address"

    def _address(self) -> tuple[int, str]:
        while not self._address_file.exists():
            if self._process is None or self._process.poll() is not None:
                raise JavaEndedError("Java ended at once")
            time.sleep(_LOOK_EVERY_S)
        content = self._address_file.read_bytes()
        self._address_file.unlink()
        size = int.from_bytes(content[4:8])
        return int.from_bytes(content[:4]), content[8 : 8 + size].decode()

    def _connected(self, port: int, secret: str) -> Any:
        # Heavy: imported while Java starts.
        from pyspark.java_gateway import launch_gateway
        from pyspark.sql.types import NumpyArrayConverter, NumpyScalarConverter

        with variables_set({"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}):
            gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]  # pyspark leaves it untyped
        gateway.proc = self._process
        # The converters of NumPy values import pandas where it is installed, which takes 0.5 s and 36 MiB; dagflow
        # sends the JVM no such values.
        client = gateway._gateway_client
        unwanted = NumpyArrayConverter, NumpyScalarConverter
        client.converters = [converter for converter in client.converters if not isinstance(converter, unwanted)]
        return gateway

    def _inside(self, directories: str) -> str:
        parents = [path.strip() for path in directories.split(",") if path.strip()]
        sweep(*parents)
        return ",".join(str(self._scratch_in(parent)) for parent in parents)

    def local_settings(self, spark_conf: Mapping[str, str]) -> dict[str, str]:
        """The directory for the context's sockets, and that for its blocks if it is not the one for temporary files."""
        settings = {}
        if directories := spark_conf.get("spark.local.dir"):
            settings["spark.local.dir"] = self._inside(directories)
        if not spark_conf.get(_SOCKETS):
            settings[_SOCKETS] = str(self._socket_directory())
        return settings

    def _socket_directory(self) -> Path:
        if len(os.fsencode(self._scratch)) <= _SOCKET_PATH_BYTES:
            return self._scratch
        parent = next(directory for directory in SHORT_DIRECTORIES if os.access(directory, os.W_OK))
        return self._scratch_in(parent)

    def kill(self) -> None:
        """Kill the process, so that what waits for it fails; any thread may call this, and end() must still follow."""
        if self._process is not None:
            self._process.kill()

    def end(self) -> None:
        """End the process, and remove its temporary files; does nothing in a second call, or in a fork."""
        if os.getpid() != self._owner:
            return
        atexit.unregister(self.end)
        gateway, self._gateway = self._gateway, None
        process, self._process = self._process, None
        if gateway is not None:
            _disconnect(gateway)
        if process is not None:
            assert process.stdin is not None
            process.stdin.close()
            if gateway is None:  # nothing depends on the process yet
                process.kill()
            try:
                process.wait(END_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        if self._log is not None:
            self._log.wait(END_S)
        for scratch in self._scratches:
            scratch.close()
        self._scratches.clear()


def spark_log(app: str) -> Path:
    return Path(".dagflow") / f"{app}.spark.log"


def _defaults(home: str) -> bytes:
    """Spark's own file of settings, to be followed by others that count more.

    Spark 4 could read it beside the file of a run; every version reads one file, of which the last line counts.
    """
    try:
        # The empty line ends a last line that continues.
        return Path(os.environ.get("SPARK_CONF_DIR") or f"{home}/conf", "spark-defaults.conf").read_bytes() + b"\n\n"
    except OSError:
        return b""


def _escaped(text: str) -> str:
    return "".join(f"\\u{ord(letter):04x}" if letter in "\\=:#! \t\n\r\f" else letter for letter in text)


def _disconnect(gateway: Any) -> None:
    # Both are heavy, and this module is imported first.
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]  # ships no types
    from pyspark import SparkContext

    if SparkContext._gateway is gateway:
        # The next context gets a process of its own.
        SparkContext._gateway = SparkContext._jvm = None
    with contextlib.suppress(Py4JError, OSError):
        gateway.shutdown()


@contextlib.contextmanager
def variables_set(environ: Mapping[str, str]) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in environ}
    os.environ.update(environ)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value


OUT_OF_MEMORY_CODE = 3
"""The exit code of a Java that stops because of -XX:+ExitOnOutOfMemoryError."""

OUT_OF_MEMORY_END = "it ran out of memory"
"""The text of how_it_ended() for this exit code."""

END_S = 5.0
"""Seconds to wait for a Java that is ending; its connections close before it is gone."""

_CHECK_EVERY_S = 0.2

_BOUND = """\
trap '' INT TERM HUP
exec 3<&0
begun() {
  kill -0 $$ || exit
  read -r facts < /proc/$$/stat && set -- $facts && shift 21 && echo "$1"
}
(
  first=$(begun)
  read -r _ <&3
  left={looks}
  while [ $left -gt 0 ]; do
    # Another process may have the number by now.
    [ "$(begun)" = "$first" ] && kill -0 $$ || exit
    left=$((left - 1))
    command -p sleep 0.2 || command -p sleep 1 || left=0
  done
  kill -KILL $$
) >/dev/null 2>&1 &
exec "$@" 3<&-
"""


def bound_to_driver(command: Sequence[str], grace_s: float = 10.0) -> list[str]:
    """A command that ends with the driver, and ignores signals that are sent to every process of a run.

    Without Java, which a signal of a terminal or a service manager would end, the driver could not end the run cleanly.
    Java ends when its standard input does. That is a pipe from the driver, so Java ends also after a SIGKILL of the
    driver. A second process at that pipe kills a Java that has not ended after grace_s: Java does not read the pipe
    while it starts, or when it hangs, or after its main thread has failed. The main thread fails where the directory of
    a killed run is removed before Java has written its address there; only the thread that waits for connections
    remains then.
    """
    return ["/bin/sh", "-c", _BOUND.replace("{looks}", str(round(grace_s / _CHECK_EVERY_S))), "sh", *command]


def with_utf8(environ: Mapping[str, str]) -> dict[str, str]:
    """An environment in which Java reads file names as UTF-8, as Python does, also in the locale C.

    In that locale Java finds no directory whose name has letters outside of ASCII, and ends without a message.
    """
    locale = next((environ[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environ.get(name)), "C")
    return {**environ, "LC_ALL": "C.UTF-8"} if locale in ("C", "POSIX") else dict(environ)


def how_it_ended(process: subprocess.Popen[bytes] | None) -> str:
    """How a Java process has ended; "" where this process does not know, or Java still runs."""
    if process is None:
        return ""
    try:
        code = process.wait(END_S)
    except subprocess.TimeoutExpired:
        return ""
    if code == OUT_OF_MEMORY_CODE:
        return OUT_OF_MEMORY_END
    if code < 0:
        return f"it was killed by {signal.Signals(-code).name}"
    return f"its exit code is {code}"
