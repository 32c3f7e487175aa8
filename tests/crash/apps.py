"""Apps for the crash tests, and what they must have published after a crash."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from dagflow import Operator
from dagflow.plan.logical import LogicalPlan, OperatorNode
from dagflow.plan.physical import Edge, PortRef
from dagflow.spec.app_spec import Attributes
from operators.reader.block_reader import BlockReader
from operators.sink.record_writer import RecordWriter
from operators.splitter.splitter import FileSplitterInput
from operators.transform.record_filter import RecordFilter


def files_app(
    source: Path, root: Path, *extra: Operator, block_size: int = 64, blocks: int = 2, name: str = "block"
) -> LogicalPlan:
    """Splitter, reader, filter, further operators in the same tasks, writer.

    Args:
        source: The directory of the input.
        root: Where journal and output are kept.
        extra: Operators between filter and writer.
        block_size: Bytes in a block.
        blocks: Blocks in a window at most.
        name: How the writer names its files.
    """
    splitter = FileSplitterInput(files=[str(source)], block_size=block_size, blocks_threshold=blocks)
    chain = [
        OperatorNode("reader", BlockReader(format="lines", min_readers=2, max_readers=2)),
        OperatorNode("filter", RecordFilter(drop={"prefix": "."}), "parallel"),
        *(OperatorNode(f"extra{n}", operator, "parallel") for n, operator in enumerate(extra)),
        OperatorNode("writer", RecordWriter(path=str(root / "out"), file_name=name), "parallel"),
    ]
    ports = [("reader", "messages"), *((node.name, "output") for node in chain[1:-1])]
    edges = [
        Edge("blocks", PortRef("splitter", "blocks_metadata_output"), PortRef("reader", "blocks_metadata_input")),
        *(
            Edge(f"records{n}", PortRef(*port), PortRef(node.name, "input"))
            for n, (port, node) in enumerate(zip(ports, chain[1:], strict=True))
        ),
    ]
    nodes = [OperatorNode("splitter", splitter), *chain]
    attributes = Attributes(checkpoint=str(root / "journal"))
    return LogicalPlan("crash", attributes, {node.name: node for node in nodes}, tuple(edges))


def published(directory: Path) -> dict[str, bytes]:
    """Return the visible files of a directory, by name."""
    if not directory.is_dir():
        return {}
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file() and path.name[0] != "."}


def leftovers(directory: Path) -> list[Path]:
    """Return the pending files that are left."""
    return [path for path in directory.rglob("*") if path.name.startswith(".")]


def require_part_of(found: dict[str, bytes], expected: dict[str, bytes]) -> None:
    """Fail unless each published file equals that of a run without a crash."""
    assert found.items() <= expected.items(), sorted(found.items() - expected.items())


def records_of(files: dict[str, bytes]) -> Counter[bytes]:
    """Count the records of published files."""
    return Counter(record for content in files.values() for record in content.splitlines())
