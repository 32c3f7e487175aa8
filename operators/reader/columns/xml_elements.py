"""Makes columns from elements of XML: from the text at paths below them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from xml.parsers import expat

import numpy as np
import pyarrow as pa

from dagflow.api.records import RecordBatch
from dagflow.errors import MOST_LEVELS
from dagflow.late import compute as pc
from operators.reader.columns.types import ColumnType
from operators.reader.columns.typing import in_records, typed, without_refused, without_words
from operators.reader.columns.xml_shapes import SELF, ElementShapes, Shape
from operators.reader.formats.base import ByteAccounting, Parsed
from operators.reader.scanning.search import Positions

Found = dict[str, list[str]]
"""The texts at each path of an element, in the order in which they are there."""


class ElementParser:
    """Parses elements one after the other; entities are only the five of XML, so that none of them expands.

    Args:
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


class ElementColumns:
    """Makes columns from elements.

    Args:
        types: The types of columns, by the path of each; those of lists take several texts.
        takes_others: Whether elements may have texts at other paths.
    """

    def __init__(
        self, types: Mapping[str, ColumnType], null_values: Collection[str] = (), takes_others: bool = True
    ) -> None:
        self._types, self._takes_others = types, takes_others
        self._null_values = null_values
        self._lists = {path: kind.is_nested for path, kind in types.items()}
        self._shapes: ElementShapes | None = None

    def parse(self, batch: RecordBatch, encoding: str, rejects: ByteAccounting) -> Parsed:
        """The elements with their columns; rejects take in those that are not well-formed, or do not fit."""
        if self._shapes is None or self._shapes.charset != encoding:
            self._shapes = ElementShapes(self._shape, encoding)
        rows, arrays, reasons = self._shapes.found(batch.record, self._lists)
        is_other = np.ones(len(batch), bool)
        is_other[rows] = is_other[[*reasons]] = False
        others = np.flatnonzero(is_other)
        if len(rows) < len(batch):
            parser = self._parser(encoding)
            found: list[Found] = []
            for row, element in zip(others.tolist(), batch.take(others).to_pylist(), strict=True):
                try:
                    found.append(self._checked(parser.parse(element)))
                except ValueError as error:
                    reasons[row] = str(error)
            order = np.argsort(np.append(rows, others[~np.isin(others, [*reasons])]))
            batch = without_refused(batch, in_records(reasons, batch), rejects)
            arrays = {path: self._with_others(path, arrays.get(path), found, order) for path in self._types}
        if not len(batch):
            return Parsed(batch)
        columns = {path: self._values(array, self._types[path].arrow) for path, array in arrays.items()}
        return typed(Parsed(batch, pa.RecordBatch.from_pydict(columns)), self._types, (), rejects)

    def _shape(self, markup: list[bytes]) -> Shape | str | None:
        last = len(markup) - 1
        numbered = b"".join(piece + b"%d;" % index if index < last else piece for index, piece in enumerate(markup))
        if self._shapes is None or b"<!" in numbered or b"<?" in numbered:
            return None
        texts: dict[str, list[int]] = {}
        blank: list[int] = []
        try:
            found = self._parser(self._shapes.charset).parse(numbered)
        except ValueError as error:
            return str(error)
        for path, numbers in found.items():
            for indices in ([int(number) for number in text.split(";")[:-1]] for text in numbers):
                # Text beside elements has several parts.
                if len(indices) > 1 or (path == SELF and path not in self._types):
                    blank += indices
                else:
                    texts.setdefault(path, []).append(indices[0] if indices else -1)
        fits = all(path in self._types and (self._lists[path] or len(places) == 1) for path, places in texts.items())
        return Shape(texts, blank) if fits else None

    def _parser(self, encoding: str) -> ElementParser:
        return ElementParser(encoding, self._types if self._takes_others else None)

    def _checked(self, found: Found) -> Found:
        if not self._takes_others and (others := found.keys() - self._types.keys()):
            raise ValueError(f"{min(others)} is in none of the columns that were inferred")
        for path, texts in found.items():
            if len(texts) > 1 and not self._lists[path]:
                name = self._types[path].name
                raise ValueError(f"column '{path}' ({name}): it is there {len(texts)} times, and takes no list")
        return found

    def _with_others(self, path: str, array: pa.Array | None, found: list[Found], order: Positions) -> pa.Array:
        """The texts at a path of all elements in order, of which some were parsed one by one."""
        is_list = self._lists[path]
        values = [each.get(path) if is_list else each.get(path, [None])[0] for each in found]
        others = pa.array(values, pa.list_(pa.string()) if is_list else pa.string())
        return (others if array is None else pa.concat_arrays([array, others])).take(pa.array(order))

    def _values(self, texts: pa.Array, kind: pa.DataType) -> pa.Array:
        """Texts without white space around them where they are no text, and null for those that mean it."""
        if pa.types.is_list(kind):
            values = self._values(texts.flatten(), kind.value_type)
            return pa.ListArray.from_arrays(texts.offsets, values, mask=texts.is_null() if texts.null_count else None)
        if pa.types.is_string(kind):
            return without_words(texts, self._null_values)
        return without_words(pc.utf8_trim_whitespace(texts), ("", *self._null_values))


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
