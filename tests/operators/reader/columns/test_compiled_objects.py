"""Objects that machine code reads: members in any order, names, numbers and texts."""

from __future__ import annotations

import json
import math
import random
from decimal import Decimal

import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dagflow.api.records import Delimiters, RecordBatch
from operators.reader.columns.compiled_objects import LEAST_LINES
from tests.operators.reader.columns.flat_objects import FlatObjects, read_flat


def read(lines: list[bytes], schema: pa.Schema, *, takes_others: bool = True, end: bytes = b"\n") -> FlatObjects:
    """What is read of lines, most of which can be read."""
    found = read_flat(RecordBatch.raw(lines, Delimiters((end,))), schema, takes_others=takes_others)
    assert found is not None
    return found


def test_members_stand_in_any_order_in_each_line() -> None:
    """Where any of them may be absent."""
    names = ["a", "ab", "abcdefg", "abcdefgh", "abcdefghi", "ä", "", "a very long name of a member, with blanks"]
    schema = pa.schema([(name, pa.int64()) for name in names])
    dice = random.Random(1)
    objects = [dict.fromkeys(dice.sample(names, dice.randint(1, len(names))), n) for n in range(2000)]
    found = read([json.dumps(each, ensure_ascii=False).encode() for each in objects], schema, takes_others=False)
    assert not len(found.left)
    assert found.table.to_pylist() == [dict.fromkeys(names) | each for each in objects]


def test_names_that_only_begin_alike_are_other_members() -> None:
    """Names of any length are compared up to the quote behind them."""
    schema = pa.schema({"abcdefgh": pa.int64(), "k": pa.int64()})
    others = ["abcdefg", "abcdefghi", "abcdefgH", "abcdefgh ", "kk", "", "abcdefghabcdefgh"]
    lines = [b'{"%s": 1, "k": 2}' % others[n % len(others)].encode() for n in range(LEAST_LINES)]
    assert read(lines, schema).table.to_pylist() == [{"abcdefgh": None, "k": 2}] * LEAST_LINES


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\0"])
def test_a_name_with_escapes_is_left_to_a_parser(name: str) -> None:
    """Also where it stands as it is, which is no JSON."""
    schema = pa.schema({name: pa.int64(), "k": pa.int64()})
    lines = [b'{"k": 1}'] * LEAST_LINES + [json.dumps({name: 1, "k": 2}).encode(), b'{"%s": 1}' % name.encode()]
    found = read(lines, schema)
    assert found.left.tolist() == [LEAST_LINES, LEAST_LINES + 1]
    assert found.table.to_pylist() == [{name: None, "k": 1}] * LEAST_LINES


def test_a_column_that_is_there_twice_is_left() -> None:
    """Another member is left out, as often as it is there."""
    lines = [b'{"k": 1, "o": 1, "o": "x"}'] * LEAST_LINES + [b'{"k": 1, "k": 1}', b'{"k": null, "k": null}']
    assert read(lines, pa.schema({"k": pa.int64()})).left.tolist() == [LEAST_LINES, LEAST_LINES + 1]


@pytest.mark.parametrize("bits", [8, 16, 32, 64])
@pytest.mark.parametrize("sign", ["", "u"])
def test_whole_numbers_are_read_as_far_as_their_type_goes(sign: str, bits: int) -> None:
    """A batch with one that has no room, or is not whole, is left to what says which one it is."""
    least, most = (0, (1 << bits) - 1) if sign else (-(1 << bits - 1), (1 << bits - 1) - 1)
    right = [str(number) for number in (least, least + 1, 0, 1, 7, 10, most - 1, most)]
    right += ["-0", "-1", "-10"] if least else []
    lines, schema = [b'{"k": %s}' % text.encode() for text in right * LEAST_LINES], pa.schema({"k": f"{sign}int{bits}"})
    assert read(lines, schema).table["k"].to_pylist() == list(map(int, right)) * LEAST_LINES
    for wrong in (str(least - 1), str(most + 1), "1.0", "1e2", "9" * 30, "-" + "9" * 30):
        with pytest.raises(pa.ArrowInvalid, match="Failed to parse"):
            read([*lines, b'{"k": %s}' % wrong.encode()], schema)


def test_narrow_floats_are_rounded_once() -> None:
    """Not to a double first, which would give the next one."""
    number = b"1.00000017881393421514957253748434595763683319091796875001"
    found = read([b'{"k": %s}' % number] * LEAST_LINES, pa.schema({"k": pa.float32()}))
    assert found.table["k"][0].as_py() == 1.0000001192092896


@pytest.mark.parametrize("number", ["1e2", "-0.5", "12345678901234567890123456789012345.678", "5E-1", "0.10"])
def test_decimals_are_those_that_are_written(number: str) -> None:
    """With as many digits as there are."""
    found = read([b'{"k": %s}' % number.encode()] * LEAST_LINES, pa.schema({"k": pa.decimal128(38, 3)}))
    assert found.table["k"][0].as_py() == Decimal(number)


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b""])
def test_a_part_of_a_buffer_is_read_by_itself(end: bytes) -> None:
    """Whatever stands before and behind it."""
    lines = [b'{"k": "x%d", "n": %d}' % (row, row) for row in range(3 * LEAST_LINES)]
    whole = RecordBatch.raw(lines, Delimiters((end,)))
    for part in (whole.slice(7, LEAST_LINES), whole.slice(LEAST_LINES, 2 * LEAST_LINES)):
        found = read_flat(part, pa.schema({"k": pa.string(), "n": pa.int64()}), takes_others=True)
        assert found is not None
        assert not len(found.left)
        assert found.table["n"].to_pylist() == [json.loads(line)["n"] for line in part.to_pylist()]
        assert found.table["k"].to_pylist() == [json.loads(line)["k"] for line in part.to_pylist()]


WHOLE = st.integers(-(10**19), 10**19)
NUMBERS = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    WHOLE.map(str),
    st.builds(lambda whole, scale: f"{Decimal(whole).scaleb(-scale):f}", WHOLE, st.integers(0, 25)),
    st.builds("{}e{}".format, WHOLE, st.integers(-330, 280)),
    st.builds("{}.5E{}{}".format, st.integers(0, 9999), st.sampled_from("+-"), st.integers(0, 30)),
)


@given(st.lists(NUMBERS, min_size=1, max_size=20))
@example(
    ["9007199254740993", "9007199254740992", "9007199254740991e22", "1e23", "1e22", "1e-22", "1e-23", "-0", "-0.0"]
)
@example(["0.1", "123456789012345.678", "5e-324", "1.7976931348623157e308", "0e0", "0E+5", "1e0022", "1e-00"])
def test_a_double_is_the_nearest_one_to_what_is_written(numbers: list[str]) -> None:
    """To the last bit, and with its sign, for numbers alone and for all of a column."""
    for each in [*([number] for number in numbers), numbers]:
        lines = [b'{"k": %s}' % number.encode() for number in each] + [b'{"k": 1.5}'] * LEAST_LINES
        values = read(lines, pa.schema({"k": pa.float64()})).table["k"].to_pylist()[: len(each)]
        expected = [float(number) for number in each]
        assert values == expected
        assert [math.copysign(1, value) for value in values] == [math.copysign(1, value) for value in expected]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)


@given(st.lists(TEXTS, min_size=1, max_size=30), st.booleans())
@example(["", "x" * 7, "x" * 8, "x" * 9, "\x7f", "\x80", "é" * 20, "\U0001f600", "}, {", "!", " #", "[]"], True)
@example(
    ['"', "\\", "\t", "xxxxxxx\\", 'xxxxxxx"', "xxxxxxxx\n", "\0", "\x1f", "\x7f\x80\u07ff\u0800\uffff\U00010000"],
    False,
)
def test_texts_with_escapes_are_left_and_others_read(texts: list[str], is_ascii: bool) -> None:
    """At all places within the eight bytes that are looked at together."""
    objects = [{"k": text[cut:], "l": text[:cut]} for text in texts for cut in range(min(9, len(text) + 1))]
    objects += [{"k": "y", "l": ""}] * 2 * LEAST_LINES
    lines = [json.dumps(each, ensure_ascii=is_ascii).encode() for each in objects]
    found = read(sorted(lines, key=lambda line: b"\\" in line), pa.schema({"k": "string", "l": "string"}))
    found.table.validate(full=True)
    plain = [each for each, line in zip(objects, lines, strict=True) if b"\\" not in line]
    assert found.table.to_pylist() == plain
    assert found.left.tolist() == list(range(len(plain), len(objects)))


UNENDED = [
    b'{"k": "\\',
    b'{"k": "\\ud800\\',
    b'{"k": "\\ud800\\udc0',
    b'{"k": "x',
    b'{"k": "x"',
    b'{"k": 1',
    b'{"k": -',
    b'{"k": tru',
    b'{"k":',
    b'{"k',
    b"{ ",
    b"{",
]


@pytest.mark.parametrize("last", UNENDED)
def test_nothing_behind_the_last_line_is_taken_for_a_part_of_it(last: bytes) -> None:
    """It has no delimiter, and ends where the buffer does."""
    lines = [b'{"k": "x"}'] * LEAST_LINES
    assert read([*lines, last], pa.schema({"k": "string"}), end=b"").left.tolist() == [LEAST_LINES]


def test_a_line_does_not_go_on_in_the_next_one() -> None:
    """Where nothing stands between them."""
    lines = [b'{"k": 1}', b'{"k": 1, "o": "x', b'y"}', b'{"k": 1', b"}", b'{"k": 1', b', "o": 2}', b'{"k":', b"1}"]
    lines += [b'{"k": 1'] + [b'{"k": 2}'] * LEAST_LINES
    found = read(lines, pa.schema({"k": pa.int64()}), end=b"")
    assert found.left.tolist() == list(range(1, 10))


def test_an_object_without_members_is_left() -> None:
    """A parser refuses it where members are inferred."""
    lines = [b'{"k": 1}'] * LEAST_LINES + [b"{}", b"{ }", b"{,}", b'{"k": 1,}']
    assert read(lines, pa.schema({"k": pa.int64()})).left.tolist() == list(range(LEAST_LINES, LEAST_LINES + 4))
