"""The log of the Java process: bounded, private, with its beginning and its end."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from dagflow.runtime.scratch import ProcessLog

PATIENCE_S = 60.0


def logged(path: Path, pieces: list[bytes], head_bytes: int, tail_bytes: int) -> bytes:
    """What a log holds after a process has written these pieces."""
    log = ProcessLog(head_bytes, tail_bytes)
    log.begin(path)
    with open(log.descriptor, "wb", buffering=0) as pipe:
        for piece in pieces:
            pipe.write(piece)
    log.wait(PATIENCE_S)
    return path.read_bytes()


@given(st.lists(st.binary(min_size=1, max_size=50), max_size=20), st.integers(0, 60), st.integers(1, 60))
def test_a_log_keeps_its_head_and_its_tail_in_bounded_space(pieces: list[bytes], head: int, tail: int) -> None:
    """What is short enough is kept as it is; of the rest the log says how much it left out."""
    written = b"".join(pieces)
    with tempfile.TemporaryDirectory() as folder:
        kept = logged(Path(folder) / "log", pieces, head, tail)
    if len(written) <= head + 2 * tail:
        assert kept == written
    if kept != written:
        assert kept[:head] == written[:head]
        assert kept.endswith(written[-tail:])
        mark, _, newest = kept[head:].partition(b" bytes are left out here ...\n")
        assert mark.startswith(b"\n... ")
        assert head + int(mark[5:]) + len(newest) == len(written)
        assert len(kept) <= head + len(mark) + 29 + 2 * tail + 50


def test_the_log_of_the_run_before_is_kept_and_both_are_private(tmp_path: Path) -> None:
    """Operators may print records: no other user reads the log, or looks into its directory."""
    path = tmp_path / ".dagflow" / "app.spark.log"
    before = os.umask(0)
    try:
        for text in (b"first", b"second", b"third"):
            logged(path, [text], 10, 10)
    finally:
        os.umask(before)
    assert (path.read_bytes(), path.with_name("app.spark.log.1").read_bytes()) == (b"third", b"second")
    assert [each.stat().st_mode & 0o777 for each in (path.parent, path)] == [0o700, 0o600]
