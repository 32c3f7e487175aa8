"""The names of column types, as apps give them."""

from __future__ import annotations

import itertools
import re
import zoneinfo
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Annotated, Any

import pyarrow as pa
from pydantic import BeforeValidator, WithJsonSchema

from dagflow.api.properties import PropertyPartError
from dagflow.frozen import frozen
from dagflow.late import compute as pc
from operators.column_names import shown_name
from operators.found_values import MAX_DEPTH, is_number

_NAMED: Mapping[str, pa.DataType] = {
    "string": pa.string(),
    "bool": pa.bool_(),
    **{f"{sign}int{bits}": pa.type_for_alias(f"{sign}int{bits}") for bits in (8, 16, 32, 64) for sign in ("", "u")},
    "float32": pa.float32(),
    "double": pa.float64(),
    "date32": pa.date32(),
    "time32[s]": pa.time32("s"),
    "time32[ms]": pa.time32("ms"),
    "time64[us]": pa.time64("us"),
    "time64[ns]": pa.time64("ns"),
    **{f"timestamp[{unit}]": pa.timestamp(unit) for unit in ("s", "ms", "us", "ns")},
}
_ALIASES = {
    "int": "int64",
    "integer": "int64",
    "float": "double",
    "float64": "double",
    "str": "string",
    "text": "string",
    "boolean": "bool",
    "date": "date32",
    "time": "time64[us]",
    "timestamp": "timestamp[us]",
}
_OPTIONS = {"type", "format", "optional"}
_DECIMAL = re.compile(r"decimal(?:128)?\(\s*([0-9]+)\s*(?:,\s*([0-9]+)\s*)?\)")
_ZONED = re.compile(r"timestamp\[\s*(s|ms|us|ns)\s*,\s*([^\]]*?)\s*\]")
_NESTED = re.compile(r"(list|struct)\s*<(.*)>", re.DOTALL)
_OFFSET = re.compile(r"[+-](?:0[0-9]|1[0-4]):[0-5][0-9]")

TYPES = (
    "string, bool, int8 to int64, uint8 to uint64, float32, double, decimal(9, 2), date32, time32[s], time64[us], "
    "timestamp[us], timestamp[us, Europe/Paris]; and for JSON list<int64>, struct<a: int64, b: string>"
)
"""The types, with an example of those that have parameters."""


@frozen
class ColumnType:
    """The type of a column.

    Attributes:
        name: As the app gives it.
        arrow: The Arrow type.
        pattern: How the app says that dates, times and numbers are written; None for ISO 8601, and a decimal point.
        is_optional: Whether a file with a header may lack the column.
    """

    name: str
    arrow: pa.DataType
    pattern: TimePattern | NumberPattern | None = None
    is_optional: bool = False

    @property
    def has_zone(self) -> bool:
        """Whether values are instants, whatever zone they are written in."""
        return bool(pa.types.is_timestamp(self.arrow) and self.arrow.tz is not None)

    @property
    def is_nested(self) -> bool:
        """Whether values are arrays or objects, which only JSON has."""
        return bool(pa.types.is_nested(self.arrow))

    def with_numbers(self, pattern: NumberPattern) -> ColumnType:
        """The type, with a pattern if its values are numbers."""
        return replace(self, pattern=pattern) if is_number(self.arrow) else self

    @classmethod
    def of(cls, value: object) -> ColumnType:
        """The type that an app gives: a name, or a mapping with type and format.

        Raises:
            ValueError: The type does not exist, or its format does not fit it.
        """
        if isinstance(value, cls):
            return value
        if isinstance(value, str):
            return cls(value, arrow_type(value))
        if not isinstance(value, Mapping) or set(value) - _OPTIONS or not isinstance(value.get("type"), str):
            raise ValueError("the type of a column is a name, or a mapping with type, format and optional")
        name, format, is_optional = value["type"], value.get("format"), value.get("optional", False)
        arrow = arrow_type(name)
        if not isinstance(is_optional, bool):
            raise ValueError(f"optional: expected true or false, got {is_optional!r}")
        if format is None:
            return cls(name, arrow, None, is_optional)
        if not isinstance(format, str):
            raise ValueError(f"format: expected text, as '%d.%m.%Y', got {format!r}")
        if not pa.types.is_temporal(arrow):
            raise ValueError(f"the type {name!r} takes no format; dates, times and timestamps do")
        return cls(name, arrow, TimePattern.of(format, arrow), is_optional)


def arrow_type(name: str) -> pa.DataType:
    """The Arrow type of a name.

    Raises:
        ValueError: The type does not exist, or its parameters are out of range.
    """
    known = _NAMED.get(_ALIASES.get(name, name))
    if known is not None:
        return known
    if decimal := _DECIMAL.fullmatch(name):
        digits, scale = int(decimal[1]), int(decimal[2] or 0)
        if not 1 <= digits <= 38 or scale > digits:
            raise ValueError(f"{name!r}: a decimal has 1 to 38 digits, and not more of them behind the point")
        return pa.decimal128(digits, scale)
    if zoned := _ZONED.fullmatch(name):
        if not (_OFFSET.fullmatch(zoned[2]) or is_zone(zoned[2])):
            raise ValueError(f"{name!r}: there is no time zone {zoned[2]!r}; try UTC, Europe/Paris or +01:00")
        return pa.timestamp(zoned[1], zoned[2])
    if nested := _NESTED.fullmatch(name.strip()):
        return _nested_type(nested[1], nested[2])
    if any(name.count(opened) > name.count(closed) for opened, closed in ("()", "[]", "<>")):
        # In braces YAML ends a value at the comma.
        raise ValueError(
            f"the type {shown_name(name)} has no closing bracket; within {{...}} put it in quotes: 'decimal(9, 2)'"
        )
    raise ValueError(f"there is no type {shown_name(name)}; the types are {TYPES}")


def is_zone(name: str) -> bool:
    """Whether there is a time zone of a name; to list all of them, Python opens each of their files."""
    try:
        zoneinfo.ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        return False
    return not name.startswith(("posix", "right/"))


_STEPS = {"<": 1, ">": -1}


def _nested_type(kind: str, inside: str) -> pa.DataType:
    """The type of arrays or objects.

    Raises:
        ValueError: The text is no type such as list<int64> or struct<a: int64>, or holds no type.
    """
    if (
        inside.count("<") >= MAX_DEPTH
        and max(itertools.accumulate(map(_STEPS.get, inside, itertools.repeat(0)))) >= MAX_DEPTH
    ):
        raise ValueError(f"{kind}<{inside[:20]}...: lists and structs are nested more than {MAX_DEPTH} levels deep")
    if kind == "list":
        return pa.list_(arrow_type(inside.strip()))
    fields: dict[str, pa.DataType] = {}
    for part in _parts(inside):
        name, colon, type_name = part.partition(":")
        if not colon or not name.strip() or name.strip() in fields:
            raise ValueError(f"struct<{inside}>: members are named once each, as in struct<a: int64, b: string>")
        fields[name.strip()] = arrow_type(type_name.strip())
    return pa.struct(list(fields.items()))


def _parts(inside: str) -> list[str]:
    """The members of a struct, divided at commas that are in no inner type."""
    parts, depth = [""], 0
    for letter in inside:
        depth += (letter in "<([") - (letter in ">)]")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def schema_of(types: Mapping[str, ColumnType]) -> pa.Schema:
    """The columns that have these types."""
    return pa.schema([(name, kind.arrow) for name, kind in types.items()])


def refuse_optional(types: Mapping[str, ColumnType]) -> None:
    """Refuse optional columns, where only the header of CSV can lack some.

    Raises:
        ValueError: A column is optional.
    """
    for name, kind in types.items():
        if kind.is_optional:
            raise ValueError(f"columns: '{name}' is optional, which only columns of csv with a header can be")


COLUMN_TYPE_SCHEMA = {
    "anyOf": [
        {"type": "string"},
        {
            "type": "object",
            "properties": {"type": {"type": "string"}, "format": {"type": "string"}, "optional": {"type": "boolean"}},
            "required": ["type"],
            "additionalProperties": False,
        },
    ]
}


def of_columns(of: Callable[[object], Any], value: Any) -> Any:
    """What an app gives for each column, as `of` makes it; what is no mapping stays.

    Raises:
        PropertyPartError: `of` refuses what is given for a column.
    """
    if not isinstance(value, Mapping):
        return value
    found = {}
    for column, option in value.items():
        try:
            found[column] = of(option)
        except ValueError as error:
            raise PropertyPartError(f"column '{column}': {error}", (str(column),)) from None
    return found


def json_schema_of_columns(each: Mapping[str, Any]) -> WithJsonSchema:
    """The JSON schema of an option with something for each column, or with the path of a file of them."""
    file = {"type": "string", "pattern": r"\.ya?ml$", "description": "a file of columns"}
    return WithJsonSchema({"anyOf": [{"type": "object", "additionalProperties": each}, file]})


ColumnTypes = Annotated[
    dict[str, Any], BeforeValidator(partial(of_columns, ColumnType.of)), json_schema_of_columns(COLUMN_TYPE_SCHEMA)
]
"""The type of each column, by its name: a ColumnType each. An app may name a YAML file that has them."""


_MONTHS = ["january", "february", "march", "april", "may", "june", "july", "august", "september", "october"]
_MONTHS += ["november", "december"]
_NUMBERS = [f"{number:02}" for number in range(1, 13)]

_DIRECTIVES = {
    "Y": "[0-9]{4}",
    "y": "[0-9]{2}",
    "m": "[0-9]{1,2}",
    "b": f"(?i:{'|'.join(month[:3] for month in _MONTHS)})",
    "B": f"(?i:{'|'.join(_MONTHS)})",
    "d": "[0-9]{1,2}",
    "H": "[0-9]{1,2}",
    "I": "[0-9]{1,2}",
    "p": "(?i:am|pm)",
    "M": "[0-9]{1,2}",
    "S": "[0-9]{1,2}",
    "f": "[0-9]{1,9}",
    "z": "Z|[+-][0-9]{2}:?[0-9]{2}",
}
_DIGITS = frozenset("YymdHIMSf")
_SHORT = {"F": "%Y-%m-%d", "T": "%H:%M:%S"}
_YEARS = {f"{year % 100:02}": str(year) for year in range(1969, 2069)}
_SHORT_MONTHS = {month[:3]: number for month, number in zip(_MONTHS, _NUMBERS, strict=True)}
_LONG_MONTHS = dict(zip(_MONTHS, _NUMBERS, strict=True))
_HOURS = {f"{hour % 12 or 12:02}{'am' if hour < 12 else 'pm'}": f"{hour:02}" for hour in range(24)}


@frozen
class TimePattern:
    """A pattern of dates or times.

    Attributes:
        text: As the app gives it.
        regex: An RE2 expression with a group for each directive, named as it.
        directives: The letters of its directives.
    """

    text: str
    regex: str
    directives: frozenset[str]

    @classmethod
    def of(cls, text: str, kind: pa.DataType) -> TimePattern:
        """The pattern for a type.

        Raises:
            ValueError: The pattern has directives that are unknown, doubled, too many or too few for the type.
        """
        parts = re.findall(r"%.|%$|[^%]+", re.sub(r"%([FT])", lambda found: _SHORT[found[1]], text), re.DOTALL)
        regex, directives = "", []
        for index, part in enumerate(parts):
            letter = part[1:] if part.startswith("%") else ""
            if part == "%%" or not part.startswith("%"):
                regex += re.escape(part.replace("%%", "%"))
                continue
            if letter not in _DIRECTIVES:
                known = ", ".join(f"%{letter}" for letter in (*_DIRECTIVES, *_SHORT))
                raise ValueError(f"format {text!r} has {part!r}; known are {known}, %%")
            directives.append(letter)
            neighbours = parts[max(0, index - 1) : index] + parts[index + 1 : index + 2]
            is_apart = not any(neighbour.startswith("%") and neighbour[1:] in _DIGITS for neighbour in neighbours)
            # Next to other digits, only its length shows where a number ends.
            digits = _DIRECTIVES[letter] if is_apart else _DIRECTIVES[letter].replace("{1,2}", "{2}")
            regex += f"(?P<{letter}>{digits})"
        _require(text, directives, kind)
        return cls(text, f"^(?:{regex})$", frozenset(directives))

    def canonical(self, texts: Any) -> Any:
        """Convert texts to ISO 8601: dates, times, or both, with Z or an offset where the pattern has one."""
        groups = pc.extract_regex(texts, self.regex)
        found = {letter: pc.struct_field(groups, letter) for letter in self.directives}
        days, times = self.directives & set("Yy"), self.directives & set("HI")
        iso = []
        if days:
            year = found["Y"] if "Y" in found else _looked_up(found["y"], _YEARS)
            iso.append(pc.binary_join_element_wise(year, _month(found), _two(found["d"]), "-"))
        if times:
            hour = _two(found["H"]) if "H" in found else _half_day(found)
            seconds = _two(found["S"]) if "S" in found else pa.scalar("00")
            clock = pc.binary_join_element_wise(hour, _two(found["M"]), seconds, ":")
            iso.append(pc.binary_join_element_wise(clock, found["f"], ".") if "f" in found else clock)
        whole = pc.binary_join_element_wise(*iso, "T") if len(iso) > 1 else iso[0]
        return pc.binary_join_element_wise(whole, found["z"], "") if "z" in found else whole


@frozen
class NumberPattern:
    """How numbers are written.

    Attributes:
        decimal: The character before the fraction.
        thousands: The character between groups of three digits, which need not be there; None for none.
    """

    decimal: str
    thousands: str | None

    @property
    def text(self) -> str:
        return f"1{self.thousands or ''}234{self.decimal}5"

    def canonical(self, texts: Any) -> Any:
        """Convert texts to numbers with a point and without groups; null where they are not written so."""
        mark, group = re.escape(self.decimal), re.escape(self.thousands or "")
        whole = rf"(?:[0-9]{{1,3}}(?:{group}[0-9]{{3}})+|[0-9]+)" if group else "[0-9]+"
        number = rf"[+-]?(?:{whole}(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]+)?"
        is_number = pc.match_substring_regex(texts, rf"^(?:{number}|(?i:nan|[+-]?inf(?:inity)?))$")
        plain = pc.replace_substring(texts, self.thousands, "") if self.thousands else texts
        return pc.if_else(is_number, pc.replace_substring(plain, self.decimal, "."), pa.scalar(None, pa.string()))


def _require(text: str, directives: list[str], kind: pa.DataType) -> None:
    day, month, year = ("d",), ("m", "b", "B"), ("Y", "y")
    clock = [("H", "I"), ("M",)]
    needed = {"date": [year, month, day], "time": clock}
    is_time, is_stamp = pa.types.is_time(kind), pa.types.is_timestamp(kind)
    for choice in needed["time" if is_time else "date"] + (clock if is_stamp and set(directives) & set("HIMS") else []):
        if len(set(choice) & set(directives)) != 1:
            raise ValueError(f"format {text!r} needs one of {', '.join('%' + each for each in choice)}")
    allowed = set("HIpMSf") if is_time else set("YymbBd") | (set("HIpMSfz") if is_stamp else set())
    for letter in directives:
        if directives.count(letter) > 1:
            raise ValueError(f"format {text!r} has %{letter} twice")
        if letter not in allowed:
            raise ValueError(f"format {text!r} has %{letter}, which is no part of {'a time' if is_time else 'a date'}")
    if ("I" in directives) != ("p" in directives):
        raise ValueError(f"format {text!r}: %I and %p go together")
    if "f" in directives and "S" not in directives:
        raise ValueError(f"format {text!r} has %f, and no %S before it")
    if is_stamp and ("z" in directives) != (kind.tz is not None):
        has, hint = ("%z", "give the type a zone, as timestamp[us, UTC]") if kind.tz is None else ("no %z", "add it")
        raise ValueError(f"format {text!r} has {has}, and the type is {kind_name(kind)}; {hint}")


def kind_name(kind: pa.DataType) -> str:
    return f"timestamp[{kind.unit}]" if kind.tz is None else f"timestamp[{kind.unit}, {kind.tz}]"


def _two(digits: Any) -> Any:
    return pc.utf8_lpad(digits, 2, "0")


def _month(found: dict[str, Any]) -> Any:
    if "m" in found:
        return _two(found["m"])
    return _looked_up(found["b"], _SHORT_MONTHS) if "b" in found else _looked_up(found["B"], _LONG_MONTHS)


def _half_day(found: dict[str, Any]) -> Any:
    return _looked_up(pc.binary_join_element_wise(_two(found["I"]), found["p"], ""), _HOURS)


def _looked_up(keys: Any, values: dict[str, str]) -> Any:
    """The values of keys, in any case; null where there is none."""
    indices = pc.index_in(pc.utf8_lower(keys), value_set=pa.array(list(values)))
    return pa.array(list(values.values())).take(indices)
