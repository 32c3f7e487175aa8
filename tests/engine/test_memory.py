"""What a driver holds while it runs."""

from __future__ import annotations

import gc
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from dagflow.engine.control import Emission
from dagflow.engine.memory import sparing_memory
from dagflow.engine.windows import WindowCodec
from dagflow.journal import JournalState, WindowPlan
from dagflow.journal.records import Event
from dagflow.plan.logical import load_app
from dagflow.plan.physical import PortRef
from dagflow.plan.placement import place
from operators.pack import BlockPack

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


def test_arrow_uses_malloc_during_a_run_and_not_after() -> None:
    """Also where the run fails: the process may have other work."""
    before = pa.default_memory_pool().backend_name
    with pytest.raises(ValueError, match="the run"), sparing_memory():
        assert pa.default_memory_pool().backend_name == "system"
        raise ValueError("the run")
    assert pa.default_memory_pool().backend_name == before


def planned(files: int, codec: WindowCodec) -> WindowPlan:
    """A window of one pack."""
    pack = BlockPack.of(1, [f"in/{number}" for number in range(files)], range(1000, 1000 + files), range(files))
    tuples = {PortRef("reader", "blocks_metadata_input"): [pack]}
    return codec.plan_of(Emission(1, tuples, b"", {}), {"reader": 2}, [])


def test_a_planned_window_is_no_object_for_each_of_its_files(tmp_path: Path) -> None:
    """Several windows are planned, running or being published, and each may have 20,000 files."""
    (tmp_path / "app.yaml").write_text(APP)
    app = load_app(str(tmp_path / "app.yaml"))
    plan = place(app)
    codec = WindowCodec(plan, {name: node.operator for name, node in app.operators.items()}, "tag")
    state = JournalState()
    planned(1, codec)
    gc.collect()
    before = sys.getallocatedblocks()
    state.apply(Event("PLAN", planned(2000, codec).to_json()))
    gc.collect()
    assert sys.getallocatedblocks() - before < 500
    task = codec.task_of(state.planned[1], {})
    assert sum(len(pack.names) for share in task.assigned["reader"] for _, packs in share for pack in packs) == 2000
