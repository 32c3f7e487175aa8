"""Dates and times that are not written as in ISO 8601, by patterns such as %d.%m.%Y."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

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


@dataclass(frozen=True, slots=True)
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
                known = ", ".join(f"%{each}" for each in (*_DIRECTIVES, *_SHORT))
                raise ValueError(f"format {text!r} has {part!r}; known are {known}, %%")
            directives.append(letter)
            neighbours = parts[max(0, index - 1) : index] + parts[index + 1 : index + 2]
            is_apart = not any(each.startswith("%") and each[1:] in _DIGITS for each in neighbours)
            # Next to other digits, only its length shows where a number ends.
            digits = _DIRECTIVES[letter] if is_apart else _DIRECTIVES[letter].replace("{1,2}", "{2}")
            regex += f"(?P<{letter}>{digits})"
        _require(text, directives, kind)
        return cls(text, f"^(?:{regex})$", frozenset(directives))

    def to_iso(self, texts: Any) -> Any:
        """Convert texts to ISO 8601: dates, times, or both, with Z or an offset where the pattern has one.

        Args:
            texts: A string array.

        Returns:
            A string array, with null where a text does not match.
        """
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


def _require(text: str, directives: list[str], kind: pa.DataType) -> None:
    """Refuse directives that do not fit a type."""
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
    """The name of a timestamp's type, as apps give it."""
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
