"""A record format of one's own that is no text of lines: events behind their length, such as `12 info,21,done`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import ClassVar

from pydantic import Field

from operators.reader.columns.types import ColumnTypes
from operators.reader.columns.typing import TextColumns
from operators.reader.formats.length_prefixed import Prefixed

_LENGTH = re.compile(rb"(\d{1,8}) ")
_EVENT = re.compile(r"(?P<level>\w+),(?P<seconds>\d{1,9}),(?P<text>.*)", re.DOTALL)


class Counted(TextColumns, Prefixed):
    """Events that follow each other, each behind its length in decimal digits and a space."""

    name: ClassVar[str] = "counted"

    columns: ColumnTypes = Field({"level": "string", "seconds": "int32", "text": "string"})

    def content_range(self, data: memoryview, position: int) -> tuple[int, int] | None:
        """Read the length."""
        if length := _LENGTH.match(data, position):
            return length.end(), length.end() + int(length[1])
        if len(data) - position < self.max_prefix_bytes and data[position:].tobytes().isdigit():
            return None
        raise ValueError("no length and space, such as `12 `, before the record")

    def values(self, text: str) -> Mapping[str, str]:
        """Divide an event; the types of columns do the rest."""
        event = _EVENT.fullmatch(text)
        if event is None:
            raise ValueError("no event such as info,21,done")
        return event.groupdict()
