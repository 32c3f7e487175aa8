import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dagflow.errors import ANOTHER_CHECKPOINT, JournalError
from dagflow.journal.frames import FORMAT_VERSION, Compressed, TornError, decode, decode_all, decompressed, encode

JSON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.sampled_from(["\udcff", "\ud800x"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(values=st.lists(JSON, max_size=4))
def test_frames_say_what_was_encoded(values: list[object]) -> None:
    """Any JSON values, also text that is not UTF-8, come back one by one."""
    assert list(decode_all(b"".join(map(encode, values)), "x")) == values


@given(value=JSON, beside=JSON)
def test_a_compressed_value_is_written_as_if_it_were_not(value: object, beside: object) -> None:
    """Whatever it is and whatever stands beside it, readers cannot tell, and its holder can open it."""
    assert decode(encode([Compressed(value), beside]), "x") == [value, beside]
    assert decompressed(Compressed(value)) == value


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf, -0.0, 5e-324])
def test_numbers_that_json_does_not_know_come_back(number: float) -> None:
    """None of them becomes null, wherever it stands: a record of the user's may hold it."""
    value = {"a": [None, {"b": number}], "c": [[number]], "d": [1, "e", number]}
    assert repr(decode(encode(value), "x")) == repr(value)
    assert repr(decode(encode([Compressed(value), None]), "x")) == repr([value, None])
    assert repr(decompressed(Compressed(value))) == repr(value)


@given(value=JSON, data=st.data())
def test_a_beginning_of_a_frame_is_torn(value: object, data: st.DataObject) -> None:
    """Wherever it is cut, it is known for what it is."""
    frame = encode(value)
    cut = data.draw(st.integers(0, len(frame) - 1))
    with pytest.raises(TornError, match="its writer died before it was done"):
        decode(frame[:cut], "log/1")


@given(value=JSON, data=st.data())
def test_a_changed_byte_never_goes_unnoticed(value: object, data: st.DataObject) -> None:
    """Not in the header, not in the body."""
    frame = bytearray(encode(value))
    position = data.draw(st.integers(0, len(frame) - 1))
    frame[position] ^= data.draw(st.integers(1, 255))
    complaints = r"its writer died|does not fit|not a part of a journal|is unknown here|frames where one"
    with pytest.raises(JournalError, match=complaints):
        decode(bytes(frame), "log/1")


def test_zeros_where_a_frame_should_be_are_torn() -> None:
    """Some file systems show them after a power loss."""
    with pytest.raises(TornError, match="cut off"):
        decode(bytes(300), "log/1")


@given(JSON, st.integers(0, 40), st.integers(0, 100))
def test_a_header_that_ends_in_zeros_is_torn(value: object, kept: int, zeros: int) -> None:
    """The file system has lost its end; also behind a whole frame."""
    frame = encode(value)
    part = frame[: min(kept, frame.index(b"\n"))] + b"\0" * zeros
    with pytest.raises(TornError, match=r"the header is cut off|the object is empty"):
        decode(part, "place")
    with pytest.raises(TornError, match="the header is cut off"):
        list(decode_all(frame + part + b"\0", "place"))


@pytest.mark.parametrize("data", [b"hello", b"PAR1" + bytes(100), b"\n", b"{}"])
def test_foreign_bytes_are_no_journal(data: bytes) -> None:
    """They are not taken for a torn record, which would be passed over."""
    with pytest.raises(JournalError, match="log/1: this is not a part of a journal") as caught:
        decode(data, "log/1")
    assert not isinstance(caught.value, TornError)


@pytest.mark.parametrize(
    ("version", "way_out"), [(FORMAT_VERSION + 1, "a newer one$"), (FORMAT_VERSION - 1, ANOTHER_CHECKPOINT)]
)
def test_an_unknown_version_is_refused_with_a_way_out(version: int, way_out: str) -> None:
    """Neither a later format is guessed at, nor an earlier one."""
    frame = encode([1]).replace(b"dagflow-journal %d " % FORMAT_VERSION, b"dagflow-journal %d " % version, 1)
    message = f"version {version} is unknown here, version {FORMAT_VERSION} is known\n *run the version of dagflow that"
    with pytest.raises(JournalError, match=f"{message} wrote it, or {way_out}"):
        decode(frame, "log/1")


def test_two_frames_are_not_one() -> None:
    """An object that must be one frame is not read in part."""
    with pytest.raises(JournalError, match="2 frames where one was expected"):
        decode(encode(1) + encode(2), "log/1")
