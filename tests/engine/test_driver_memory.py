"""What a driver holds while it runs."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

import dagflow
from dagflow.engine.control_graph import Emission
from dagflow.engine.driver_memory import limited_memory
from dagflow.engine.window_codec import WindowCodec
from dagflow.journal.state import JournalState
from dagflow.journal.windows import WindowPlan
from dagflow.plan.load import load_app
from dagflow.plan.physical import PortRef
from dagflow.plan.placement import place
from operators.files.small_file_batch import SmallFileBatch
from tests.cli.processes import environment
from tests.nightly import by_day

APP = """\
name: sample
operators:
  splitter: {class: FileSplitterInput, properties: {files: in}}
  reader: {class: BlockReader, properties: {min_readers: 2, max_readers: 2}}
  writer: {class: RecordWriter, properties: {path: out}, partition: parallel}
streams:
  blocks: {from: splitter.blocks_metadata_output, to: reader.blocks_metadata_input}
  records: {from: reader.messages, to: writer.input}
"""


ALLOCATES = """
import importlib, os, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
from dagflow.engine.driver_memory import limited_memory
import pyarrow
with limited_memory():
    print(pyarrow.default_memory_pool().backend_name, end=" ")
print(pyarrow.default_memory_pool().backend_name, os.environ.get("ARROW_DEFAULT_MEMORY_POOL"))
"""


def allocators(*imported: str, **variables: str) -> list[str]:
    """What Arrow allocates with in a process of its own, during a run and after it, and what others inherit."""
    plain = {name: value for name, value in environment().items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    command = [sys.executable, "-c", ALLOCATES, *imported]
    answer = subprocess.run(command, env={**plain, **variables}, check=True, capture_output=True, text=True)
    return answer.stdout.split()


def test_arrow_uses_malloc_wherever_dagflow_is_imported_first() -> None:
    """Parquet's writer takes what the process has, and not what a run sets."""
    assert allocators() == ["system", "system", "None"]


def test_arrow_keeps_its_allocator_in_tasks_and_where_imported_before() -> None:
    """In the one the process may have other work, in the others it is the faster one."""
    own = allocators("pyarrow")[1]
    assert own != "system"
    assert allocators("pyarrow") == ["system", own, "None"]
    assert allocators("pyspark.worker")[1] == own


def test_an_allocator_that_a_person_has_chosen_stays() -> None:
    """It may be chosen to find a leak."""
    assert allocators(ARROW_DEFAULT_MEMORY_POOL="mimalloc") == ["mimalloc"] * 3


def test_arrow_is_given_back_its_allocator_also_where_a_run_fails() -> None:
    """The caller may go on."""
    before = pa.default_memory_pool().backend_name
    with pytest.raises(ValueError, match="the run"), limited_memory():
        assert pa.default_memory_pool().backend_name == "system"
        raise ValueError("the run")
    assert pa.default_memory_pool().backend_name == before


_HOLES = """
import ctypes, os, sys
from dagflow.engine import driver_memory
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
driver_memory._RELEASE_EVERY_S = float(sys.argv[1])
free_memory = driver_memory.FreeMemory()
def resident():
    return int(open("/proc/self/statm").read().split()[1]) * os.sysconf("SC_PAGESIZE") >> 20
def returned():
    blocks = [libc.malloc(64 << 10) for _ in range(1600)]
    for block in blocks:
        ctypes.memset(block, 1, 64 << 10)
    for block in blocks[:-1]:
        libc.free(ctypes.c_void_p(block))
    before = resident()
    free_memory.release()
    return before - resident()
with driver_memory.limited_memory():
    print(returned(), returned())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc is asked for it")
@pytest.mark.parametrize(("every_s", "returns_again"), [("0", True), ("1000", False)])
def test_holes_in_the_heap_are_given_back_once_a_second(every_s: str, returns_again: bool) -> None:
    """What is free below something that is not free would be held for as long as the driver lives."""
    answer = subprocess.run(
        [sys.executable, "-c", _HOLES, every_s], env=environment(), check=True, capture_output=True, text=True
    )
    first, second = map(int, answer.stdout.split())
    assert (first > 80, second > 80) == (True, returns_again)


def planned(files: int, codec: WindowCodec) -> WindowPlan:
    """A window of one batch."""
    batch = SmallFileBatch.of(1, [f"in/{number}" for number in range(files)], range(1000, 1000 + files), range(files))
    tuples = {PortRef("reader", "blocks_metadata_input"): [batch]}
    return codec.plan_of(Emission(WindowPlan(1), tuples), {"reader": 2})


def test_a_planned_window_is_no_object_for_each_of_its_files(tmp_path: Path) -> None:
    """Several windows are planned, running or being published, and each may have 40,000 files."""
    (tmp_path / "app.yaml").write_text(APP)
    app = load_app(str(tmp_path / "app.yaml"))
    plan = place(app)
    codec = WindowCodec(plan, {name: node.operator for name, node in app.operators.items()}, "tag")
    state = JournalState()
    planned(1, codec)
    gc.collect()
    before = sys.getallocatedblocks()
    state.apply(planned(2000, codec))
    gc.collect()
    assert sys.getallocatedblocks() - before < 500
    task = codec.job_of(state.planned[1], {})
    assert (
        sum(len(batch.names) for share in task.assigned["reader"] for _, batches in share for batch in batches) == 2000
    )


def test_each_package_that_imports_arrow_lets_dagflow_choose_first() -> None:
    """Whichever of its modules is the first of a process, Arrow is imported with the chosen allocator."""
    root = Path(dagflow.__file__).parent
    at_once = re.compile("^(import|from) pyarrow", re.MULTILINE)
    importing = {path.parent for path in root.rglob("*.py") if at_once.search(path.read_text())} - {root}
    assert root / "api" in importing
    late = [each for each in importing if "import dagflow.arrow_allocator" not in (each / "__init__.py").read_text()]
    assert late == []


_REUSED = """
import ctypes, resource
from dagflow.engine.driver_memory import memory_for_tasks
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
with memory_for_tasks():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        block = libc.malloc(1 << 20)
        ctypes.memset(block, 1, 1 << 20)
        libc.free(ctypes.c_void_p(block))
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only glibc is asked for it")
def test_the_kernel_gives_a_buffer_of_tasks_once() -> None:
    """It has 256 pages, and each that is given anew is cleared."""
    answer = subprocess.run(
        [sys.executable, "-c", _REUSED], env=environment(), check=True, capture_output=True, text=True
    )
    assert int(answer.stdout) < 1000


OPERATOR = """
import pyarrow as pa
from dagflow import InputPort, Operator, OutputPort


class Allocator(Operator):
    input = InputPort()
    output = OutputPort()

    @input.each
    def name(self, record):
        self.output.emit(pa.default_memory_pool().backend_name.encode())
"""


@pytest.mark.parametrize("workers", by_day(1, [1, 2]))
def test_tasks_allocate_with_arrows_own_allocator(tmp_path: Path, workers: int) -> None:
    """Also where they run in the driver's process, which has malloc otherwise."""
    (tmp_path / "in").write_bytes(b"a line\n")
    (tmp_path / "allocators.py").write_text(OPERATOR)
    (tmp_path / "app.yaml").write_text(
        APP.replace("  writer:", "  allocator: {class: allocators.Allocator, partition: parallel}\n  writer:")
        .replace("to: writer.input", "to: allocator.input")
        .rstrip()
        + "\n  names: {from: allocator.output, to: writer.input}\n"
    )
    plain = {name: value for name, value in environment().items() if name != "ARROW_DEFAULT_MEMORY_POOL"}
    command = [sys.executable, "-m", "dagflow", "run", "app.yaml", "--local", "--workers", str(workers)]
    subprocess.run(command, cwd=tmp_path, env=plain, check=True, capture_output=True)
    [output] = (tmp_path / "out").iterdir()
    assert output.read_text() == allocators("pyarrow")[1] + "\n"
