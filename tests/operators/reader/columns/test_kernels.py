"""Machine code splits bytes as Python does."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")

from operators.reader.columns.kernels import split  # compiles with numba


def test_bytes_are_split_as_by_python() -> None:
    """Up to the last seven bytes, and where at most every eighth byte ends a part; whatever the bytes are."""
    dice = random.Random(1)
    checked = 0
    for _ in range(3000):
        ending = dice.choice(b"\n\0\x80a")
        near = bytes({ending, ending ^ 1, ending ^ 0x80, 0, 0xFF, ord("b")})
        content = bytes(dice.choice(near + b"0123456789" * dice.randrange(8)) for _ in range(dice.randrange(90)))
        parts = split(np.frombuffer(content, np.uint8), ending)
        seen, most = content[:-7].count(ending), len(content) // 8
        if parts is None:
            assert not seen or content.count(ending) > most
            continue
        places, records = parts
        assert seen <= len(places) <= most
        assert places.tolist() == [place for place, byte in enumerate(content) if byte == ending][: len(places)]
        assert records.to_pylist() == content.split(bytes([ending]))[: len(places)]
        records.validate(full=True)
        checked += len(places)
    assert checked > 3000
