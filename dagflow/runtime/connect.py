"""The runtime of Spark Connect, which has neither RDDs nor a Java here: tasks are partitions of DataFrames."""

from __future__ import annotations

import contextlib
import itertools
import logging
import os
import pickle
import socket
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, wait
from functools import cache, lru_cache
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import cloudpickle

from dagflow.errors import DagflowError, ProcessEndedError
from dagflow.execution.messages import Program, WindowJob
from dagflow.frozen import frozen
from dagflow.runtime.base import in_thread
from dagflow.runtime.module_files import package_zip
from dagflow.runtime.spark_jobs import Apply, SparkJobs, is_cancelled, job_failure
from dagflow.runtime.spark_tasks import higher_task, lowest_task
from dagflow.runtime.start_checks import server_of

if TYPE_CHECKING:
    import pyarrow as pa


_MOST_RETRIES = 5
"""Attempts after the first one to reach a server, over about 20 seconds; by default Spark tries for ten minutes."""

_BATCH_SETTING, _BATCH_ROWS = "spark.sql.execution.arrow.maxRecordsPerBatch", "64"
"""A task holds so many items at once; by default 10,000, each of which may be a megabyte."""


def connect_class() -> Any:
    """The class of the sessions of Spark Connect; an error if a package that it needs is missing, or too old."""
    try:
        # Heavy.
        from pyspark.sql.connect.session import SparkSession
    except ImportError as error:
        raise DagflowError(
            f"Spark Connect cannot be used here: {error}",
            hint="pip install 'dagflow[connect]'; or unset SPARK_REMOTE, or run without Spark: --local, in Python "
            "app.run(local=True)",
        ) from error
    return SparkSession


def own_session(spark: Any) -> tuple[Any, Callable[[], None]]:
    """A session for one run, at the server of another one or of a URL; and what ends it.

    Two runs, and the user, have different modules and settings there. A URL such as local[2] starts a server in this
    process, which ends with the session.
    """
    session_class = connect_class()
    with contextlib.ExitStack() as ending:
        connection, user = spark, None
        if isinstance(spark, str) and spark.startswith("local"):
            spark = _started(spark)
            ending.callback(_stop, spark, os.environ.get("SPARK_REMOTE"))
        if not isinstance(spark, str):
            connection, user = spark.client._builder, spark.client._user_id
        session = session_class(connection=connection, userId=user)
        ending.callback(session.client.close)
        _limit_retries(session.client)
        session.conf.set(_BATCH_SETTING, _BATCH_ROWS)
        # Not earlier: a server that cannot be reached would be asked in vain for as long again.
        ending.callback(session.client.release_session)
        return session, ending.pop_all().close
    raise AssertionError


def _started(url: str) -> Any:
    # Heavy.
    from pyspark.sql import SparkSession

    # By default the first python3 on PATH, which may lack packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return SparkSession.builder.remote(url).getOrCreate()


def _stop(session: Any, remote: str | None) -> None:
    session.stop()
    if remote is not None:
        os.environ["SPARK_REMOTE"] = remote  # Spark removes it with a server that it has started


def _limit_retries(client: Any) -> None:
    # The error that follows says more.
    warnings.filterwarnings("ignore", r"\[RETRIES_EXCEEDED\]")
    if hasattr(client, "set_retry_policies"):
        # Absent from older versions.
        from pyspark.sql.connect.client.retries import DefaultPolicy

        client.set_retry_policies([DefaultPolicy(max_retries=_MOST_RETRIES)])
    else:
        client._retry_policy["max_retries"] = _MOST_RETRIES  # before Spark 4


class SentArchive:
    """Modules that executors need not have, as an archive that Spark unpacks for the tasks of a session."""

    def __init__(self, session: Any, paths: Iterable[Path]) -> None:
        with tempfile.TemporaryDirectory() as directory:
            archive = package_zip(paths, Path(directory))
            self._name = archive.stem
            session.addArtifacts(f"{archive}#{self._name}", archive=True)

    def bring(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function that can be sent to a process that lacks its modules."""
        pickled, load = cloudpickle.dumps(function), _loader()
        name = self._name

        def run(batches: Any) -> Any:
            return load(name, pickled)(batches)

        return run


def _loader() -> Callable[[str, bytes], Any]:
    """A function that is pickled as its code, because it is nested: nothing of dagflow is imported before it runs."""

    def load(name: str, pickled: bytes) -> Any:
        # Where the task runs.
        from pyspark import SparkFiles

        directory = os.path.join(SparkFiles.getRootDirectory(), name)
        if os.path.isdir(directory) and directory not in sys.path:
            sys.path.insert(0, directory)
        return pickle.loads(pickled)

    return load


logger = logging.getLogger(__name__)

CLOSE_S = 10.0
"""Seconds in which the server must have answered at the end of a run."""

PARALLELISM_S = 60.0
"""Seconds after which the cores are counted again, because a cluster may have grown; a look is a job."""

MOST_CORES = 1 << 16

BATCH_BYTES = 1 << 20
"""Bytes after which a task hands on what it has for other tasks."""

_COLUMNS = "key int, slot_order array<bigint>, item binary"
"""An item and where it goes to: the value that its partition is chosen by, and its slot and its order there."""

_OPENS = -2
"""The order of a row without an item, of which each slot gets one: a task learns its slot from its rows alone."""


@cache
def _schema() -> pa.Schema:
    # Imported late: what starts a run imports this module before Arrow.
    import pyarrow as pa

    return pa.schema([("key", pa.int32()), ("slot_order", pa.list_(pa.int64())), ("item", pa.binary())])


class ConnectRuntime(SparkJobs):
    """Runs windows in a session of Spark Connect.

    The session is one of the run's own at the server of the given one, which stays as it is.

    Args:
        session: A session of Spark Connect, or the URL of a server.
        modules: The app's own modules, which tasks need.
        must_stop: Whether waiting for Spark must end.
    """

    def __init__(
        self,
        program: Program,
        session: Any,
        *,
        modules: Sequence[Path] = (),
        must_stop: Callable[[], bool] = lambda: False,
    ) -> None:
        server = server_of(session)
        super().__init__(program, "in the logs of the executors", _address_towards(server), must_stop)
        self._server = server
        self._counted: tuple[float, int] | None = None
        self._is_closed = False
        self._program_sent = PickledProgram(pickle.dumps(self._program, protocol=5))
        packages = [Path(sys.modules[name].__path__[0]) for name in ("dagflow", "operators") if name in sys.modules]
        with contextlib.ExitStack() as undo, self._translating("the start of Spark Connect"):
            undo.callback(self._receiver.close)
            self._session, self._end_session = own_session(session)
            undo.callback(self._end_session)
            self._archive = SentArchive(self._session, [*modules, *packages])
            undo.pop_all()

    @property
    def parallelism(self) -> int:
        """How many tasks run at the same time, counted now and then."""
        if self._counted is None or time.monotonic() - self._counted[0] > PARALLELISM_S:
            cores = self._waited_for("look at the cores", self._count_cores)
            self._counted = time.monotonic(), max(cores, 1)
        return self._counted[1]

    def _count_cores(self) -> int:
        # Without a number, Spark makes as many partitions as it has cores.
        partition = self._session.range(MOST_CORES).selectExpr("spark_partition_id() AS number")
        return len(partition.distinct().collect())

    @property
    def may_grow(self) -> bool:
        return True

    def _executors(self) -> int:
        return 0  # a session cannot tell

    @property
    def _sent_program(self) -> PickledProgram:
        return self._program_sent

    def _label(self, what: str) -> None:
        self._session.addTag(self._group)

    def _translated(self, error: Exception, what: str) -> Exception:
        text = str(error)
        if is_cancelled(text) or self._is_closed:
            return CancelledError(f"{what} was abandoned")
        if isinstance(error, DagflowError):
            return error
        lines = text.strip().splitlines() or [type(error).__name__]
        if any(word in text for word in _GONE):
            details = next((line.partition("=")[2].strip(' "') for line in lines if "details =" in line), lines[0])
            return ProcessEndedError(
                f"{what}: the server of Spark Connect at {self._server} has ended, or cannot be reached: {details}",
                hint="its log may say more; start it again, and then the run, which continues",
            )
        return job_failure(error, what, lines[0])

    @contextlib.contextmanager
    def _translating(self, what: str) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            raise self._translated(error, what) from error

    def _prepared(self, tasks: list[Any]) -> list[bytes]:
        # Without tasks of the lowest level one opens the slots of the next one.
        return [pickle.dumps(share, protocol=5) for share in [[task] for task in tasks] or [[]]]

    def _window(self, prepared: list[bytes], window: WindowJob, slots: list[int]) -> list[Any]:
        keys = [*(self._keys(count) for count in slots[1:]), ()]
        program = self._program_sent
        frame = self._first(_lowest(lowest_task(program, window, len(keys[0])), prepared, keys[0]), len(prepared))
        for level, count in enumerate(slots[1:], start=1):
            frame = self._exchanged(frame, count).sortWithinPartitions("slot_order")
            task = higher_task(program, window, level, len(keys[level]))
            frame = frame.mapInArrow(self._archive.bring(_higher(task, keys[level])), _COLUMNS)
        return _items(frame.select("item").collect())

    def _first(self, function: Callable[..., Any], tasks: int) -> Any:
        return self._session.range(0, tasks, 1, tasks).mapInArrow(self._archive.bring(function), _COLUMNS)

    @property
    def _has_partition_ids(self) -> bool:
        return hasattr(self._session.range(1), "repartitionById")

    def _keys(self, slots: int) -> tuple[int, ...]:
        """The value of `key` for each slot, so that each one has a partition of its own."""
        return tuple(range(slots)) if self._has_partition_ids else hashed_keys(slots)

    def _exchanged(self, frame: Any, slots: int) -> Any:
        return frame.repartitionById(slots, "key") if self._has_partition_ids else frame.repartition(slots, "key")

    def _applied(self, apply: Apply, items: list[Any], tasks: int) -> list[Any]:
        shares = [items[len(items) * n // tasks : len(items) * (n + 1) // tasks] for n in range(tasks)]
        pickled = [pickle.dumps(share, protocol=5) for share in shares]
        return _items(self._first(_lowest(apply, pickled, ()), tasks).select("item").collect())

    def cancel(self) -> None:
        """Cancel the running jobs; Python tasks may continue to write for about two seconds."""
        self._asked_for(lambda: self._session.interruptTag(self._group))

    def close(self) -> None:
        """End the session of the run; a second call does nothing."""
        if self._is_closed:
            return
        self._is_closed = True
        self._receiver.close()
        self._asked_for(self._end_session)

    def _asked_for(self, ask: Callable[[], object]) -> None:
        """Ask the server for something, and go on without an answer where there is none."""
        # Where the server has ended, so have its jobs.
        wait([in_thread(ask, "connect-end")], CLOSE_S)


_GONE = ("StatusCode.UNAVAILABLE", "INVALID_HANDLE.SESSION_", "SparkContext was shut down")


def _address_towards(server: str) -> str:
    """The address of this host that a server sees."""
    host = urlsplit(server).hostname
    with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host or "localhost", 1))  # sends nothing
        return str(probe.getsockname()[0])
    return "127.0.0.1"


@frozen
class PickledProgram:
    """A program that is unpickled once in each process."""

    data: bytes

    @property
    def value(self) -> Program:
        return _unpickled(self.data)


@lru_cache(1)
def _unpickled(data: bytes) -> Program:
    program: Program = pickle.loads(data)
    return program


def _lowest(apply: Apply, shares: list[bytes], keys: Sequence[int]) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The function of a stage without a stage below it: each row names a share."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from _rows(apply(pickle.loads(shares[number])), keys, opens=number == 0)

    return run


def _higher(
    task: Callable[[int, Iterable[Any]], Iterator[Any]], keys: Sequence[int]
) -> Callable[..., Iterator[pa.RecordBatch]]:
    """The function of a higher stage: rows arrive sorted by slot and order, all those of a slot in one partition."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for slot, rows in itertools.groupby(_arrived(batches), key=itemgetter(0)):
            items = (item for _, item in rows if item is not None)
            yield from _rows(task(slot, items), keys, opens=slot == 0)

    return run


def _arrived(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[int, Any]]:
    for batch in batches:
        for slot_order, item in zip(batch.column(1).to_pylist(), batch.column(2), strict=True):
            yield slot_order[0], pickle.loads(item.as_buffer())


def _rows(results: Iterable[Any], keys: Sequence[int], *, opens: bool) -> Iterator[pa.RecordBatch]:
    """The results of a task as rows, with one for each slot that opens; without keys all go to the driver."""
    placed = results if keys else (((0, ()), result) for result in results)
    if opens:
        placed = itertools.chain((((slot, (_OPENS,)), None) for slot in range(len(keys))), placed)
    rows: list[tuple[int, list[int], bytes]] = []
    size = 0
    for (slot, order), item in placed:
        rows.append((keys[slot] if keys else 0, [slot, *order], pickle.dumps(item, protocol=5)))
        size += len(rows[-1][2])
        if size >= BATCH_BYTES:
            yield _batch(rows)
            rows, size = [], 0
    if rows:
        yield _batch(rows)


def _batch(rows: list[tuple[int, list[int], bytes]]) -> pa.RecordBatch:
    columns = zip(*rows, strict=True)
    # Imported late, as for the schema.
    import pyarrow as pa

    return pa.RecordBatch.from_arrays(
        [pa.array(column, field.type) for column, field in zip(columns, _schema(), strict=True)], schema=_schema()
    )


def _items(rows: Iterable[Any]) -> list[Any]:
    return [pickle.loads(row[0]) for row in rows]


@cache
def hashed_keys(slots: int) -> tuple[int, ...]:
    """For each slot the least number whose hash gives the partition of that number, out of as many as there are slots.

    Spark before 4.1 cannot be told the partition itself. A wrong hash would cost time alone: tasks know their slots
    from their rows, of which all with one key come to one task.
    """
    key_by_slot: dict[int, int] = {}
    for key in itertools.count():
        key_by_slot.setdefault(_hash(key) % slots, key)
        if len(key_by_slot) == slots:
            return tuple(key_by_slot[slot] for slot in range(slots))
    raise AssertionError


def _hash(number: int) -> int:
    """Spark's hash of a column of type int, which is a signed number of 32 bits.

    Source:
        MurmurHash3 for 32 bits (Austin Appleby, public domain) of four bytes, with Spark's seed of 42.
    """
    mask = 0xFFFFFFFF
    mixed = number * 0xCC9E2D51 & mask
    mixed = (mixed << 15 | mixed >> 17) & mask
    value = 42 ^ (mixed * 0x1B873593 & mask)
    value = (value << 13 | value >> 19) & mask
    value = (value * 5 + 0xE6546B64) & mask
    value ^= 4
    value = (value ^ value >> 16) * 0x85EBCA6B & mask
    value = (value ^ value >> 13) * 0xC2B2AE35 & mask
    value ^= value >> 16
    return value - (value >> 31 << 32)
