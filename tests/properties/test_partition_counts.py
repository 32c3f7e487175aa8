"""The number of partitions does not change the output."""

from __future__ import annotations

import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from dagflow.engine.run import run
from dagflow.runtime.local import InlineRuntime
from operators.reader.block_reader import BlockReader
from tests.crash.apps import files_app, published
from tests.nightly import examples

LINES = st.lists(st.sampled_from([b"", b".", b".hidden", b"a", b"some words", b"x" * 40]), max_size=60)


def output(source: Path, root: Path, partitions: int, name: str, blocks: int) -> dict[str, bytes]:
    """Return what a run with this many readers publishes."""
    app = files_app(source, root, block_size=16, blocks=blocks, name=name)
    reader = app.operators["reader"].operator
    assert isinstance(reader, BlockReader)
    reader.min_readers = reader.max_readers = partitions
    run(app, runtime=InlineRuntime)
    return published(root / "out")


@settings(max_examples=examples(15))
@given(
    files=st.lists(LINES, min_size=1, max_size=4), counts=st.lists(st.integers(1, 9), min_size=2, max_size=3),
    blocks=st.integers(1, 12),
)  # fmt: skip
def test_the_partition_count_of_windows_never_changes_their_output(
    files: list[list[bytes]], counts: list[int], blocks: int
) -> None:
    """Block files are the same to the byte; part files hold the same bytes in the same order."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in"
        source.mkdir()
        for number, lines in enumerate(files):
            (source / f"{number}.txt").write_bytes(b"".join(line + b"\n" for line in lines))
        by_block = [output(source, Path(folder) / f"b{n}", count, "block", blocks) for n, count in enumerate(counts)]
        assert all(found == by_block[0] for found in by_block)
        by_part = [output(source, Path(folder) / f"p{n}", count, "part", blocks) for n, count in enumerate(counts)]
        joined = [b"".join(found[name] for name in sorted(found)) for found in by_part]
        assert joined == [joined[0]] * len(joined)
        assert joined[0] == b"".join(line + b"\n" for lines in files for line in lines if not line.startswith(b"."))
