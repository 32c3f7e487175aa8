"""Machine code splits bytes as Python does."""

from __future__ import annotations

import random

import numpy as np
import pytest

pytest.importorskip("numba", reason="needs numba")

from operators.reader.columns.byte_kernels import find_pairs, split  # compiles with numba


@pytest.mark.parametrize("size", [1, 2, 63, 64, 65, 66, 128, 129, 1000])
def test_pairs_are_found_at_every_position(size: int) -> None:
    """At the borders of words, side by side, and at the end."""
    dice = random.Random(size)
    for _ in range(100):
        content = bytes(dice.choices(b"},x", k=size))
        pairs = find_pairs(np.frombuffer(content, np.uint8), *b"},")
        assert pairs.tolist() == [place for place in range(size) if content.startswith(b"},", place)]


def test_bytes_are_split_as_by_python() -> None:
    """Up to the last 63 bytes, where few bytes end a part, and none is refused; whatever the others are."""
    dice = random.Random(1)
    checked = refused = 0
    for _ in range(3000):
        ending = dice.choice(b"\n\x80a")
        near = bytes({ending, ending ^ 1, ending ^ 0x80, 0xFF, ord("b")})
        rare = b"\0\r" if dice.randrange(4) == 0 else b""
        content = bytes(dice.choices(near + b"0123456789" * dice.randrange(8) + rare, k=dice.randrange(400)))
        parts = split(np.frombuffer(content, np.uint8), ending, (0, 13))
        ends = [position for position, byte in enumerate(content) if byte == ending]
        if parts is None:
            refused += (has_refused := any(byte in b"\0\r" for byte in content))
            assert has_refused or not content[:-63].count(ending) or len(ends) >= len(content) // 8
            continue
        positions, records = parts
        assert positions.tolist() == ends[: len(positions)]
        assert all(position >= len(content) - 63 for position in ends[len(positions) :])
        assert not any(byte in b"\0\r" for byte in content[: positions[-1]])
        assert records.to_pylist() == content.split(bytes([ending]))[: len(positions)]
        records.validate(full=True)
        checked += len(positions)
    assert checked > 3000
    assert refused > 100
