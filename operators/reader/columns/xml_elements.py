"""Makes columns from elements of XML: from the text at paths below them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from xml.parsers import expat

import pyarrow as pa

from dagflow.api.records import RecordBatch
from dagflow.errors import MOST_LEVELS
from operators.reader.columns.types import ColumnType
from operators.reader.columns.typing import in_records, typed, without_refused
from operators.reader.formats.base import ByteAccounting, Parsed

SELF = "."
"""The path of the text of an element itself."""

Found = dict[str, list[str]]
"""The texts at each path of an element, in the order in which they are there."""


class ElementParser:
    """Parses elements one after the other; entities are only the five of XML, so that none of them expands.

    Args:
        encoding: The encoding of the elements.
        wanted: The paths whose texts are kept; None for all.
    """

    def __init__(self, encoding: str, wanted: Collection[str] | None = None) -> None:
        self._encoding = encoding
        self._wanted = wanted
        self._found: Found = {}
        self._begin()

    def parse(self, element: bytes) -> Found:
        """The texts of an element, by their paths.

        Raises:
            ValueError: The element is not well-formed, or nested too deeply.
        """
        self._found = {}
        try:
            if not self._paths:
                # All elements are children of one, because a parser takes one element.
                self._parser.Parse(b"<_>", False)
            self._parser.Parse(element, False)
        except expat.ExpatError as error:
            self._begin()
            # The place in the error is one in all of the elements so far.
            raise ValueError(f"not well-formed XML: {expat.ErrorString(error.code)}") from error
        except (LookupError, ValueError) as error:
            self._begin()
            raise ValueError(str(error)) from error
        return self._found

    def _begin(self) -> None:
        parser = self._parser = expat.ParserCreate(self._encoding)
        parser.buffer_text = True
        parser.StartElementHandler = self._start
        parser.EndElementHandler = self._end
        parser.CharacterDataHandler = self._text
        self._paths: list[str] = []
        self._texts: list[list[str]] = []
        self._are_leaves: list[bool] = []

    def _start(self, name: str, attributes: dict[str, str]) -> None:
        paths = self._paths
        if len(paths) > MOST_LEVELS:
            raise ValueError(f"elements are nested more than {MOST_LEVELS} levels deep")
        path = f"{paths[-1]}/{name}" if len(paths) > 2 else name
        if len(paths) == 1:
            path = ""
        if paths:
            self._are_leaves[-1] = False
        paths.append(path)
        self._texts.append([])
        self._are_leaves.append(True)
        for attribute, value in attributes.items():
            if attribute != "xmlns" and not attribute.startswith("xmlns:"):
                self._keep(f"{path}/@{attribute}" if path else f"@{attribute}", value)

    def _text(self, text: str) -> None:
        self._texts[-1].append(text)

    def _end(self, name: str) -> None:
        path, text, is_leaf = self._paths.pop(), "".join(self._texts.pop()), self._are_leaves.pop()
        if text.strip() or (is_leaf and path):
            self._keep(path or SELF, text)

    def _keep(self, path: str, text: str) -> None:
        if self._wanted is None or path in self._wanted:
            self._found.setdefault(path, []).append(text)


@dataclass(frozen=True, slots=True)
class ElementColumns:
    """Makes columns from elements.

    Attributes:
        types: The types of columns, by the path of each; those of lists take several texts.
        takes_others: Whether elements may have texts at other paths.
    """

    types: Mapping[str, ColumnType]
    null_values: Collection[str] = ()
    takes_others: bool = True

    def parse(self, batch: RecordBatch, encoding: str, rejects: ByteAccounting) -> Parsed:
        """The elements with their columns; rejects take in those that are not well-formed, or do not fit."""
        parser = ElementParser(encoding, self.types if self.takes_others else None)
        columns: dict[str, list[Any]] = {path: [] for path in self.types}
        reasons: dict[int, str] = {}
        for row, element in enumerate(batch.to_pylist()):
            try:
                values = self._row(parser.parse(element))
            except ValueError as error:
                reasons[row] = str(error)
                continue
            for path, column in columns.items():
                column.append(values.get(path))
        kept = without_refused(batch, in_records(reasons, batch), rejects)
        if not len(kept):
            return Parsed(kept)
        arrays = {
            path: pa.array(columns[path], pa.list_(pa.string()) if kind.is_nested else pa.string())
            for path, kind in self.types.items()
        }
        return typed(Parsed(kept, pa.RecordBatch.from_pydict(arrays)), self.types, (), rejects)

    def _row(self, found: Found) -> dict[str, Any]:
        if not self.takes_others and (others := found.keys() - self.types.keys()):
            raise ValueError(f"{min(others)} is in none of the columns that were inferred")
        row: dict[str, Any] = {}
        for path, texts in found.items():
            kind = self.types[path]
            if not kind.is_nested and len(texts) > 1:
                raise ValueError(f"column '{path}' ({kind.name}): it is there {len(texts)} times, and takes no list")
            is_text = pa.types.is_string(kind.arrow.value_type if kind.is_nested else kind.arrow)
            values = texts if is_text else [text.strip() or None for text in texts]
            values = [None if value in self.null_values else value for value in values]
            row[path] = values if kind.is_nested else values[0]
        return row


def paths_of(elements: Iterator[bytes], encoding: str, most: int) -> dict[str, str] | None:
    """The types of columns for all texts of elements: lists where an element has several; None without a text."""
    parser, types = ElementParser(encoding), dict[str, str]()
    for element in elements:
        try:
            found = parser.parse(element)
        except ValueError:
            continue
        for path, texts in found.items():
            if path in types or len(types) < most:
                types[path] = "list<string>" if len(texts) > 1 else types.get(path, "string")
    return types or None
