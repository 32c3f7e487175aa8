"""Reading no more bytes per second than the app allows."""

from __future__ import annotations

import gzip
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.api.context import OperatorContext
from dagflow.engine.run import run
from dagflow.runtime.local import InlineRuntime
from dagflow.storage.context import StorageContext
from dagflow.storage.file_kinds import KIND_BYTES
from operators.files.metadata import BlockMetadata, FileVersion
from operators.files.small_file_batch import SmallFileBatch
from operators.reader.block_files import PIECE_S, BlockFiles, RateLimitedFile, RateLimiter
from operators.reader.block_processor import BlockProcessor, ErrorPolicy, OnError, TaskAccounting
from operators.reader.block_reader import BlockReader
from operators.reader.content import ContentReader
from operators.reader.formats import RECORD_FORMATS
from tests.crash.apps import files_app, published


class ClockMovedByWaits:
    """A clock that waiting moves."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        """The time."""
        return self.now_s

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


@given(taken=st.lists(st.integers(0, 10_000), min_size=1, max_size=30), rate=st.integers(1, 100_000))
def test_a_read_waits_until_earlier_bytes_have_had_their_time(taken: list[int], rate: int) -> None:
    """After every piece size / rate has passed since the beginning when the next one begins, and no more than that."""
    watch = ClockMovedByWaits()
    limiter = RateLimiter(rate, watch.now, watch.wait)
    total = 0
    for size in taken:
        limiter.begin()
        assert watch.now_s == pytest.approx(total / rate)
        limiter.count(size)
        total += size
    limiter.begin()
    assert watch.now_s == pytest.approx(total / rate)


def test_time_in_which_nothing_was_read_is_not_saved_up() -> None:
    """After a pause the stream is as even as before, without a burst."""
    watch = ClockMovedByWaits()
    limiter = RateLimiter(100, watch.now, watch.wait)
    watch.wait(60)
    limiter.begin()
    limiter.count(500)
    limiter.begin()
    assert watch.now_s == pytest.approx(65)


@given(
    steps=st.lists(st.tuples(st.integers(1, 1000), st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=30),
    rate=st.integers(50, 2000),
)
def test_no_stretch_of_time_sees_more_than_the_rate(steps: list[tuple[int, float, float]], rate: int) -> None:
    """The rate holds for any durations of reads and of the work between them, but for the last piece."""
    watch = ClockMovedByWaits()
    limiter = RateLimiter(rate, watch.now, watch.wait)
    reads: list[tuple[float, int]] = []
    for size, read_s, work_s in steps:
        limiter.begin()
        reads.append((watch.now_s, size))
        watch.wait(read_s)
        limiter.count(size)
        watch.wait(work_s)
    for first, (begin_s, _) in enumerate(reads):
        read = 0
        for at_s, size in reads[first:]:
            assert read <= (at_s - begin_s) * rate + 1e-6
            read += size


def test_the_time_of_reads_and_of_work_counts() -> None:
    """As long as both together are faster than the rate, the rate is used whole."""
    watch = ClockMovedByWaits()
    limiter = RateLimiter(100, watch.now, watch.wait)
    for _ in range(50):
        limiter.begin()
        watch.wait(0.04)
        limiter.count(10)
        watch.wait(0.05)
    limiter.begin()
    assert watch.now_s == pytest.approx(5)


@given(
    content=st.binary(max_size=300), rate=st.integers(1, 2000), offset=st.integers(0, 300), length=st.integers(0, 400)
)
def test_a_rate_limited_file_gives_the_bytes_of_the_file(
    tmp_path_factory: pytest.TempPathFactory, content: bytes, rate: int, offset: int, length: int
) -> None:
    """Wherever a read begins and however it is cut into pieces."""
    path = tmp_path_factory.getbasetemp() / "paced"
    path.write_bytes(content)
    watch = ClockMovedByWaits()
    limiter = RateLimiter(rate, watch.now, watch.wait)
    with RateLimitedFile(StorageContext.default().open_file(str(path)), limiter) as file:
        buffer = bytearray(length)
        count = file.read_into(offset, memoryview(buffer))
        assert file.size_bytes == len(content)
        limiter.begin()
    assert bytes(buffer[:count]) == content[offset : offset + length]
    assert watch.now_s == pytest.approx(count / rate)


def test_what_is_waited_for_a_rate_is_reported_slice_by_slice() -> None:
    """However long a wait is, the task's watch gets to know often enough that it goes on."""
    watch, slices, reported = ClockMovedByWaits(), list[float](), list[float]()

    def wait(seconds: float) -> None:
        slices.append(seconds)
        watch.wait(seconds)

    limiter = RateLimiter(100, watch.now, wait, lambda: reported.append(watch.now_s))
    limiter.begin()
    limiter.count(1000)
    limiter.begin()
    assert watch.now_s == pytest.approx(10)
    assert max(slices) <= PIECE_S
    assert max(later - earlier for earlier, later in pairwise([*reported, watch.now_s])) <= PIECE_S + 1e-9


def test_each_piece_that_is_read_is_reported_and_no_empty_one(tmp_path: Path) -> None:
    """Also where there is nothing to wait for: a block may be read long before it gives records."""
    (tmp_path / "a").write_bytes(b"x" * 95)
    watch, reported = ClockMovedByWaits(), list[float]()
    limiter = RateLimiter(100, watch.now, watch.wait, lambda: reported.append(watch.now_s))
    with RateLimitedFile(StorageContext.default().open_file(str(tmp_path / "a")), limiter) as file:
        for offset in range(0, 100, 10):
            watch.wait(60)
            before = len(reported)
            file.read_into(offset, memoryview(bytearray(10)))
            assert len(reported) == before + 1
        watch.wait(60)
        assert file.read_into(95, memoryview(bytearray(10))) == 0
    assert len(reported) == 10


def test_a_reader_under_a_rate_reports_to_its_task_that_it_goes_on(tmp_path: Path) -> None:
    """For single blocks and for many small files; without a rate only the bytes are counted."""
    path = tmp_path / "a"
    path.write_bytes(b"one\ntwo\n")
    stat = path.stat()
    items: list[Any] = [
        BlockMetadata(1, str(path), FileVersion(stat.st_size, stat.st_mtime_ns), 0, stat.st_size, True),
        SmallFileBatch.of(1, [str(path)], [stat.st_size], [stat.st_mtime_ns]),
    ]
    for item in items:
        for rate in (1 << 40, None):
            context = OperatorContext()
            reader = BlockReader(max_bytes_per_second=rate)
            reader.setup(context)
            for _ in reader.read(item):
                pass
            reader.end_window()
            assert context.progress.bytes_read == stat.st_size
            assert (context.progress.steps > 0) == (rate is not None)


def test_each_partition_takes_its_share_of_the_rate() -> None:
    """A fourth of the bytes is read at a fourth of the rate."""
    reader = BlockReader(max_bytes_per_second="40KiB")
    assert reader.rate_limit() == 40 << 10
    reader.setup(OperatorContext(partitions=9, share=0.25))
    assert reader._readers is not None
    assert reader._readers.limiter is not None
    assert reader._readers.limiter.piece_bytes == 1024


@pytest.mark.parametrize(("on_error", "times"), [("fail", 1), ("skip", 2)])
def test_what_is_read_twice_is_paid_for_twice(tmp_path: Path, on_error: OnError, times: int) -> None:
    """The store gives a compressed file twice: for the check that it is sound, and for its records."""
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(bytes(range(256)) * 40))
    size, head_bytes, watch = path.stat().st_size, KIND_BYTES, ClockMovedByWaits()
    limiter = RateLimiter(1000, watch.now, watch.wait)
    context = OperatorContext()
    files = BlockFiles(context.storage, limiter)
    accounting, errors = TaskAccounting(context, adds_up=True), ErrorPolicy(on_error, "fail", context)
    reader = BlockProcessor(ContentReader(RECORD_FORMATS.make("lines"), "auto"), files, accounting, errors, context)
    version = FileVersion(size, path.stat().st_mtime_ns)
    for _ in reader.read(BlockMetadata(1, str(path), version, 0, size, True)):
        pass
    files.close()
    limiter.begin()
    assert watch.now_s == pytest.approx(times * (head_bytes + size) / 1000)


@pytest.mark.nightly
def test_a_limited_run_publishes_the_same_and_has_one_window_in_flight(tmp_path: Path) -> None:
    """The limit changes only when bytes are read."""
    (tmp_path / "in").mkdir()
    for path in sorted(Path(__file__).parent.glob("*.py")):
        (tmp_path / "in" / path.name).write_bytes(path.read_bytes())
    run(files_app(tmp_path / "in", tmp_path / "free", block_size=512), runtime=InlineRuntime)
    app = files_app(tmp_path / "in", tmp_path / "paced", block_size=512)
    app.operators["reader"].operator.max_bytes_per_second = 1 << 20  # type: ignore[attr-defined]  # a BlockReader's
    summary = run(app, runtime=InlineRuntime)
    assert published(tmp_path / "paced" / "out") == published(tmp_path / "free" / "out")
    # The two readers have the rate together, and here they read one after the other.
    assert summary.seconds >= sum(path.stat().st_size for path in (tmp_path / "in").iterdir()) / (1 << 20)
