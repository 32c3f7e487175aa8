"""The types of operators' properties in YAML, and how an operator's properties are found and checked."""

from __future__ import annotations

import difflib
import inspect
import re
import typing
import warnings
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, create_model
from pydantic_core import SchemaError

from dagflow.frozen import frozen

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 1000,
    "MB": 1000**2,
    "GB": 1000**3,
    "TB": 1000**4,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
}
_SHOWN_CHARACTERS = 60

_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*")


_MOST_BYTES = 1 << 63
"""File offsets are numbers of 64 bits, one of them for the sign."""


def parse_size(value: object) -> int:
    """Read a size such as 64MiB or a number of bytes.

    Args:
        value: A number of bytes, or text such as "64MiB" (powers of 1024) or "10MB" (powers of 1000).

    Raises:
        ValueError: The value is not a size, is not a whole number of bytes, or is larger than any file.
    """
    size = _size_of(value)
    if size >= _MOST_BYTES:
        raise ValueError(f"{value!r} is 8 EiB or more, and no file has as many bytes")
    if size != int(size):
        raise ValueError(f"{value!r} is not a whole number of bytes")
    return int(size)


def _size_of(value: object) -> int | float:
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, float) and value.is_integer():
        return value
    match = _SIZE.fullmatch(value) if isinstance(value, str) else None
    unit = _UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None:
        raise ValueError(f"{value!r} is not a size; write a number of bytes, or for example 64MiB or 10MB")
    return float(match[1]) * unit if "." in match[1] else int(match[1]) * unit


def _one_or_many(value: object) -> object:
    return [value] if isinstance(value, (str, bool)) else value


def _as_texts(value: object) -> object:
    if not isinstance(value, Mapping):
        return value
    return {key: str(each).lower() if isinstance(each, bool) else str(each) for key, each in value.items()}


def _refuse_nul(value: str) -> str:
    if "\0" in value:
        raise ValueError("it has a NUL character, which no path and no URL has")
    return value


def placeholders(*known: str) -> Callable[[str], str]:
    """A validator of text that refuses words in braces other than the known ones; doubled braces are no such words."""
    known_text = ", ".join(f"{{{name}}}" for name in known)
    takes = f"it takes {known_text}" if known else "write ${NAME} for a variable of the environment, {{ for a brace"

    def check(value: str) -> str:
        for name in _PLACEHOLDER.findall(value):
            if name not in known:
                close = difflib.get_close_matches(name, known, 1)
                hint = f"did you mean '{{{close[0]}}}'?" if close else takes
                raise ValueError(f"there is no placeholder '{{{name}}}'; {hint}")
        return value

    return check


_PLACEHOLDER = re.compile(r"(?<!\{)\{([^{}]*)\}(?!\})")


def _undoubled(value: str) -> str:
    return value.replace("{{", "{").replace("}}", "}")


def _refuse_bool(value: object) -> object:
    if isinstance(value, bool):
        raise ValueError("a number is expected, not true or false")
    return value


Size = Annotated[int, BeforeValidator(parse_size)]
"""A number of bytes; YAML may say 64MiB."""

Count = Annotated[int, BeforeValidator(_refuse_bool)]
"""A whole number; YAML's true and false are refused."""

Millis = Annotated[int, BeforeValidator(_refuse_bool), Field(ge=0)]
"""A duration in milliseconds."""

Location = Annotated[str, Field(min_length=1), AfterValidator(_refuse_nul)]
"""A path or URL."""

PartOfPath = Annotated[str, AfterValidator(_refuse_nul)]
"""Text that is part of a path; may be empty."""

OutputPath = Annotated[PartOfPath, AfterValidator(placeholders()), AfterValidator(_undoubled)]
"""A path that is written to, or empty: {{ and }} stand for braces, and a word in single ones is refused."""

OutputName = Annotated[Location, AfterValidator(placeholders()), AfterValidator(_undoubled)]
"""A path or URL that is written to, or a name that has one in it; braces as in OutputPath."""


@frozen
class Published:
    """Marks a property whose value is a location that the operator publishes files in."""


OutputLocation = Annotated[OutputName, Published()]
"""A path or URL that an operator publishes in; `validate` warns where two operators of an app have the same."""

OneOrMany = BeforeValidator(_one_or_many)
"""Marks a list or tuple whose only item YAML may give alone: a text, or true or false."""

Paths = Annotated[list[Location], OneOrMany, Field(min_length=1)]
"""One location or a list of them."""

Columns = Annotated[list[str], OneOrMany, Field(min_length=1)]
"""The name of one column or a list of them."""

ClientOptions = Annotated[dict[str, str], BeforeValidator(_as_texts)]
"""Options of another program's client, which are texts; YAML may have numbers and booleans."""


@frozen
class Variants:
    """Marks a property with values {type: name, ...}, where the name decides what else is allowed.

    Attributes:
        classes: Returns the class of each name; its properties are allowed beside type.
        find: Returns the class of a name, which may be a dotted path; raises ValueError if there is none.
    """

    classes: Callable[[], Mapping[str, type]]
    find: Callable[[str], type]


@frozen
class Tuning:
    """Marks a property that decides how fast or in how many parts an operator works, and not what it emits.

    A run does not report a change of it since the run before.
    """


@frozen
class Limit:
    """Marks a property that fails a run beyond a bound: any value that does not fail it gives the same results."""


class PropertyTextError(ValueError):
    """A mistake inside the text of a property, such as an expression, with its position.

    Raised by a property's validator, and reported at the line and column of the mistake in the app.

    Args:
        reason: The mistake, as a clause.
        offset: The position in the text, counted from 0.
    """

    def __init__(self, reason: str, text: str, offset: int) -> None:
        super().__init__(reason, text, offset)
        self.reason = reason
        self.text = text
        self.offset = offset

    def __str__(self) -> str:
        line = self.text.count("\n", 0, self.offset) + 1
        column = self.offset - self.text.rfind("\n", 0, self.offset)
        place = f"column {column}" if "\n" not in self.text.strip() else f"line {line}, column {column}"
        return f"{self.reason}, at {place} of {shown_text(self.text)}"


class PropertyPartError(ValueError):
    """A mistake in a part of a property's value; reported at the line and column of that part.

    Args:
        reason: The mistake, as a clause that names the part.
        path: The keys that lead from the property's value to the part.
        offset: The position in the part's text, counted from 0.
    """

    def __init__(self, reason: str, path: tuple[str, ...], offset: int = 0) -> None:
        super().__init__(reason, path, offset)
        self.reason = reason
        self.path = path
        self.offset = offset

    def __str__(self) -> str:
        return self.reason


def shown_text(text: str) -> str:
    """A property's text as messages quote it: on one line, and shortened."""
    line = " ".join(text.split())
    return f"'{line if len(line) <= _SHOWN_CHARACTERS else line[:_SHOWN_CHARACTERS] + '…'}'"


class HasProperties:
    """Base of classes whose properties an app gives: subclasses declare them as annotated class attributes.

    An instance is constructed by keyword.
    """

    # Also for an instance whose class has its own constructor that does not call this one.
    _given_properties: Mapping[str, Any] = MappingProxyType({})

    # The number of positional arguments of the constructor, and the names of the others, for own_arguments().
    _called_with: tuple[int, tuple[str, ...]] = (0, ())

    def __new__(cls, *arguments: Any, **options: Any) -> Self:
        """An instance that keeps how its constructor was called, whatever constructor the class has."""
        instance = super().__new__(cls)
        if arguments or options:
            object.__setattr__(instance, "_called_with", (len(arguments), tuple(options)))
        return instance

    def __getstate__(self) -> dict[str, Any]:
        # A copy elsewhere does not need how its original was made.
        return {name: value for name, value in self.__dict__.items() if name != "_called_with"}

    def __init__(self, **properties: Any) -> None:
        """Set the properties, whose values are as in YAML.

        Raises:
            pydantic.ValidationError: A property is unknown, missing or of the wrong type.
            ValueError: check_properties refused the values.
        """
        checked = property_model(type(self)).model_validate(properties)
        self._given_properties = properties
        for name in type(checked).model_fields:
            setattr(self, name, getattr(checked, name))
        self.check_properties()

    @property
    def given_properties(self) -> Mapping[str, Any]:
        """The arguments of the constructor, by name."""
        return self._given_properties

    def check_properties(self) -> None:
        """Refuse values that are wrong together; called last by the constructor.

        Raises:
            ValueError: The values do not fit together; the message names the properties.
        """


def own_arguments(made: HasProperties) -> list[inspect.Parameter]:
    """The constructor arguments of an instance that it has not passed on to HasProperties.__init__.

    Nothing is known of one that was copied or unpickled.
    """
    count, names = made._called_with
    parameters = inspect.signature(type(made).__init__).parameters
    by_name_only = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    by_position = [each.name for each in parameters.values() if each.kind not in by_name_only][1:]
    return [
        parameters.get(name) or inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY)
        for name in (*by_position[:count], *names)
        if name not in made.given_properties
    ]


_EXPECTED = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "int_parsing_size": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "text",
    "list_type": "a list",
    "tuple_type": "a list",
    "set_type": "a list",
    "dict_type": "a mapping",
    "mapping_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "dataclass_type": "a mapping",
    "none_required": "null",
    "literal_error": "{expected}",
    "enum": "{expected}",
    "greater_than_equal": "at least {ge}",
    "greater_than": "more than {gt}",
    "less_than_equal": "at most {le}",
    "less_than": "less than {lt}",
    "too_short": "at least {min_length} of them",
    "too_long": "at most {max_length} of them",
    "string_too_short": "text of length {min_length} or more",
    "string_too_long": "text of length {max_length} or less",
    "string_pattern_mismatch": "text that matches {pattern}",
}
"""The expected value, by pydantic's type of error."""


def expectation(detail: Mapping[str, Any]) -> str:
    """The value that pydantic expected, such as "a list"; "" if its error says so in its own words."""
    template = _EXPECTED.get(detail["type"])
    return template.format(**detail.get("ctx", {})) if template else ""


def property_model(owner: type) -> type[BaseModel]:
    """The pydantic model of a class's properties.

    A property is an annotated class attribute whose name does not begin with an underscore; a base class's properties
    come first. A property without a value in the class body is required.

    Args:
        owner: An operator, a format, or any class that declares properties the same way.

    Returns:
        A model with one field per property, which refuses unknown names.

    Raises:
        NameError: An annotation names something that its module does not define.
        KeyboardInterrupt: The process was interrupted.
    """
    # Kept in the class itself: many apps may name a class, and making its model takes a millisecond.
    known: type[BaseModel] | None = owner.__dict__.get("__property_model__")
    if known is None:
        known = _make_model(owner)
        owner.__property_model__ = known  # type: ignore[attr-defined]  # a mark on the class
    return known


def marked(model: type[BaseModel], mark: type) -> list[str]:
    """The properties of a model that a class marks, such as Tuning, in the order of their names."""
    return sorted(
        name for name, field in model.model_fields.items() if any(isinstance(each, mark) for each in field.metadata)
    )


def _make_model(owner: type) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    hints = typing.get_type_hints(owner, include_extras=True)
    for base in reversed(owner.__mro__):
        for name in inspect.get_annotations(base):
            if name.startswith("_") or typing.get_origin(hints[name]) is ClassVar or hints[name] is ClassVar:
                continue
            fields[name] = (hints[name], getattr(owner, name, ...))
    config = ConfigDict(extra="forbid", arbitrary_types_allowed=True, validate_default=True, protected_namespaces=())
    with warnings.catch_warnings():
        # A property may have a name, such as validate, of a pydantic method that is not called.
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute", UserWarning)
        try:
            return create_model(owner.__name__, __config__=config, **fields)
        except SchemaError:
            # A wrong declaration fails again. An interruption does not: pydantic replaces it if it comes within an
            # isinstance(), and keeps no cause.
            create_model(owner.__name__, __config__=config, **fields)
            raise KeyboardInterrupt from None
