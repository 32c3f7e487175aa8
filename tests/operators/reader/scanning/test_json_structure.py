"""What a stretch of a JSON document does to where it begins."""

from __future__ import annotations

import random

import pytest

from operators.reader.columns.machine_code import MachineCode
from operators.reader.scanning import json_structure
from operators.reader.scanning.json_structure import WHITE, Effect, effects_of
from operators.testing import MemorySource
from tests.nightly import IS_NIGHTLY


def effect(data: bytes, *, in_string: bool) -> Effect:
    """The effect of some bytes, which are looked at one by one."""
    change = lowest = 0
    is_followed = has_text = is_escaped = False
    for byte in data:
        text = byte not in WHITE
        is_followed, has_text = is_followed or text, has_text or text
        if not is_escaped and byte == ord('"'):
            in_string = not in_string
        if not in_string and byte in b"{[]}":
            change += 1 if byte in b"{[" else -1
            if change < lowest:
                lowest, is_followed = change, False
        is_escaped = byte == ord("\\") and not is_escaped
    return Effect(in_string, change, lowest, is_followed, has_text)


FOLLOWERS = [MachineCode("operators.reader.columns.byte_kernels.follow_json", size) for size in (1, 1 << 40)]


@pytest.mark.parametrize("follower", FOLLOWERS, ids=["machine code", "numpy"])
@pytest.mark.parametrize("marks", [b"{}", b'{}[] "', b'{}{}"\\, ', b"{" * 9 + b"}" * 8 + b" " * 20])
def test_the_effect_of_any_stretch_is_that_of_its_bytes(
    marks: bytes, follower: MachineCode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Levels, also the lowest one, are those of bytes looked at one by one, however many levels a word closes."""
    for name, value in {"FOLLOWER": follower, "_FIRST_STEP": 64, "_MOST_STEP": 128}.items():
        monkeypatch.setattr(json_structure, name, value)
    dice = random.Random(len(marks))
    for _ in range(500 if IS_NIGHTLY else 40):
        data = bytes(dice.choices(marks, k=dice.randint(1, 400)))
        expected = effect(data, in_string=False), effect(data, in_string=True)
        assert effects_of(MemorySource(data), 0, len(data), 0) == expected
