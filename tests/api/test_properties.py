"""The types that properties take."""

from __future__ import annotations

import pytest
from pydantic_core import SchemaError

from dagflow.api.operator import Operator
from dagflow.api.properties import parse_size, property_model


@pytest.mark.parametrize(
    ("text", "size"),
    [
        (5, 5),
        ("5", 5),
        ("64MiB", 64 << 20),
        ("10MB", 10_000_000),
        ("1.5 KiB", 1536),
        ("2gib", 2 << 30),
        (3.0, 3),
        ("7B", 7),
    ],
)
def test_a_size_is_read_as_people_write_it(text: object, size: int) -> None:
    """Powers of 1000 without an i, of 1024 with one."""
    assert parse_size(text) == size


@pytest.mark.parametrize("value", [1 << 63, "8388608TiB", 1e300, "9" * 400 + ".5TiB"])
def test_a_size_that_no_file_has_is_refused(value: object) -> None:
    """Offsets are numbers of 64 bits, also where they are computed in columns."""
    assert parse_size((1 << 63) - 1) == (1 << 63) - 1
    with pytest.raises(ValueError, match=r"is 8 EiB or more"):
        parse_size(value)


@pytest.mark.parametrize("text", ["", "MiB", "5 apples", "-1", True, None, [], "1.0001KiB", "१", "१KB", "1.१KB"])
def test_what_is_no_size_is_refused_with_an_example(text: object) -> None:
    """The message shows how it is written."""
    with pytest.raises(ValueError, match=r"is not a (size|whole number)"):
        parse_size(text)


def _operator_with(error: BaseException, times: int) -> type[Operator]:
    """An operator with a property of a class with which nothing can be compared so many times."""

    class Kind(type):
        times_left = times

        def __instancecheck__(cls, instance: object) -> bool:
            if cls.times_left:
                Kind.times_left -= 1
                raise error
            return False

    return type("Reader", (Operator,), {"__annotations__": {"value": Kind("Value", (), {}) | None}, "value": None})


def test_an_interruption_while_a_schema_is_made_is_no_mistake_of_a_class() -> None:
    """Pydantic gives it as an error of the schema, as if the annotation were wrong."""
    reader = _operator_with(KeyboardInterrupt(), times=1)
    with pytest.raises(KeyboardInterrupt, match=r"^$"):
        property_model(reader)
    assert "value" in property_model(reader).model_fields


def test_an_annotation_that_no_schema_can_be_made_of_is_refused() -> None:
    """It fails however often it is tried."""
    with pytest.raises(SchemaError, match="isinstance"):
        property_model(_operator_with(TypeError("not comparable"), times=1_000_000))
