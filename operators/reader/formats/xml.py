"""Elements of an XML file as records."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import pyarrow as pa
from pydantic import Field

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.properties import Count, Size
from dagflow.api.records import LINE_FEED, RECORD, Origin, RecordBatch
from dagflow.errors import RecordError
from dagflow.storage.location import redacted
from operators.files.metadata import BlockMetadata
from operators.reader.byte_source import ByteSource, FileView, encoding_of, read_exactly
from operators.reader.columns.machine_code import MachineCode
from operators.reader.columns.types import ColumnType, ColumnTypes, refuse_optional, schema_of
from operators.reader.columns.typing import shown
from operators.reader.columns.written_values import SAMPLED_BYTES
from operators.reader.columns.xml_elements import ElementColumns, paths_of
from operators.reader.formats.base import SHOWN_BYTES, Binary, ByteAccounting, FormatTraits, Inferring, Parsed
from operators.reader.scanning.charset import Charset
from operators.reader.scanning.framing import pieces_of
from operators.reader.scanning.search import BYTE_ORDER_MARK, NONE, Positions

ASIDES = {b"<!--": b"-->", b"<![CDATA[": b"]]>", b"<?": b"?>"}
"""How what hides text begins, and how it ends."""

REST_OF_TAG = re.compile(rb"""(?:[^>"']|"[^"]*"|'[^']*')*>""")

logger = logging.getLogger(__name__)

PLAIN_ELEMENTS = MachineCode("operators.reader.columns.xml_kernels.plain_elements", 4 << 20)
"""Machine code that finds elements with nothing unusual; without it, regular expressions find all."""

_DECLARED = re.compile(rb"""\s*<\?xml[^>]*?\sencoding\s*=\s*["']([A-Za-z][A-Za-z0-9._-]*)""")
# Expat knows UTF-8 by its hyphen alone, and takes it for an encoding of single bytes otherwise. A file in wide units is
# refused before, but iconv leaves their name in the declaration of what it converts to UTF-8.
_UNICODE = re.compile("utf[-_]?(8|(16|32)([-_]?[lb]e)?)", re.IGNORECASE)
_NAME = re.compile(rb"<([A-Za-z_][^\s<>/]*)")
_ASIDE = rb"<!--|<!\[CDATA\[|<\?"
# A bracket in a comment, an instruction or quotes closes nothing. Atomic: each is read in one way only.
_SUBSET = rb"""\[(?>[^\]"'<]+|"[^"]*"|'[^']*'|<!--.*?-->|<\?.*?\?>|<(?!!--|\?))*+\]"""
_REST_OF_DOCTYPE = re.compile(rb"""(?:[^\[>"']|"[^"]*"|'[^']*')*(?:""" + _SUBSET + rb"""\s*)?>""", re.DOTALL)


class Xml(Inferring):
    """The elements of one name, each from its `<` to its `>`, with its content, also elements of the same name.

    Text in comments, CDATA sections and processing instructions is no element. Text between the elements is skipped.
    The file is in UTF-8 or another encoding in which ASCII characters are single bytes. The beginning of an element is
    known only from the beginning of the file; a block that is not read right after its predecessor is reached by
    reading the file from there.

    With columns, elements are parsed, and their texts and attributes are columns. One that is not well-formed is
    refused.
    """

    name: ClassVar[str] = "xml"
    needs_size = False
    traits = FormatTraits(needs_order=True, is_text=True)

    tag: Annotated[
        str, Field(pattern=r"^[^\s<>/!?=\"'&]+$", description="name of the elements, with its prefix, if any")
    ]
    columns: Annotated[
        ColumnTypes | Literal["infer"] | None,
        Field(
            description="a type for each column, by its path below the element, such as customer/name, @id or "
            "line/@sku; list<...> for paths that repeat. infer: all paths of the first file, as text"
        ),
    ] = None
    max_columns: Annotated[Count, Field(ge=1, description="maximum columns that are inferred")] = 1 << 14
    null_values: Annotated[
        list[str], Field(description="texts that mean null, such as ['NULL', NA]", default_factory=list)
    ]
    binary: Binary = "refuse"
    max_record: Annotated[Size, Field(ge=1, le=1 << 30, description="maximum bytes of an element")] = 64 << 20

    def check_properties(self) -> None:
        tag = re.escape(self.tag.encode())
        self._outside = re.compile(_ASIDE + rb"|<!DOCTYPE|<" + tag + rb"(?=[ \t\r\n/>])")
        self._inside = re.compile(_ASIDE + rb"|</" + tag + rb"(?=[ \t\r\n>])|<" + tag + rb"(?=[ \t\r\n/>])")
        self._reached: tuple[object, int, int, int] = (None, 0, 0, 0)
        self._has_element, self._names = True, list[bytes]()
        self._encoding: tuple[object, str] = (None, "")
        types = self.columns if isinstance(self.columns, dict) else {}
        refuse_optional(types)
        for path, kind in types.items():
            if kind.is_nested and (not pa.types.is_list(kind.arrow) or pa.types.is_nested(kind.arrow.value_type)):
                raise ValueError(f"column '{path}': {kind.name} is no list of values; name each path below it instead")
        raw = replace(self.traits, columns=StreamColumns.raw())
        self.traits = raw if self.columns is None else self.traits.with_columns(schema_of(types) if types else None)
        self._columns = ElementColumns(types, frozenset(self.null_values)) if types else None

    @property
    def _reach(self) -> int:
        """Length of the longest text that the search must see whole."""
        return max(len(b"<![CDATA["), len(self.tag.encode()) + 3)

    def read(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> Iterator[RecordBatch]:
        file = (block.url, block.version)
        limit = min(block.end, source.size_bytes)
        reached, end, position, covered = self._reached
        if reached != file or end > block.start:
            position = covered = self._begin(source, block, accounting)
        if self._encoding[0] != file:
            self._encoding = file, _declared_encoding(source)
        view = FileView(source)
        held = self.chunk_bytes
        while position < limit:
            data = view.move(position, position + held).tobytes()
            starts, stops, following, is_torn = self._elements(data, limit - position, view.is_at_end)
            if position == 0:
                self._has_element, self._names = False, list(dict.fromkeys(_NAME.findall(data)))[:8]
            self._has_element |= bool(len(starts)) or is_torn
            for index in np.flatnonzero(stops - starts > self.max_record)[:1].tolist():
                self._refuse(block, position + int(starts[index]), int(stops[index] - starts[index]))
            if len(starts):
                gaps = starts - np.maximum(np.append(covered - position, stops[:-1]), block.start - position)
                accounting.skip(covered, int(gaps[gaps > 0].sum()), "between elements")
                covered = position + int(stops[-1])
            first = int(np.searchsorted(starts, block.start - position))
            if first < len(starts):
                column = pieces_of(view.buffer, starts[first:], stops[first:])
                origin = Origin((block,), starts[first:], position)
                arrow = pa.RecordBatch.from_arrays([column], [RECORD])
                yield RecordBatch(arrow, delimiters=LINE_FEED, origin=origin)
            # What is too long is refused whether it is closed or not: the reader may not reach its end.
            # An element behind the block is not this block's.
            if following < limit - position and self._is_long(len(data) - following, is_torn):
                self._refuse(block, position + following, len(data) - following, is_torn)
            position += following
            if view.is_at_end:
                if is_torn:
                    _skip(max(covered, block.start), position, accounting)
                    covered = source.size_bytes
                if is_torn and block.start <= position < limit:
                    length = source.size_bytes - position
                    raw = data[following : following + SHOWN_BYTES]
                    accounting.reject(position, length, f"the element {self.tag} is never closed", raw)
                break
            held = self.chunk_bytes if following else 2 * held
        # The end of a compressed file is known only when it was read.
        _skip(max(covered, block.start), min(limit, source.size_bytes), accounting)
        if 0 < source.size_bytes <= limit and not self._has_element:
            self._warn(block)
        self._reached = (file, block.end, position, covered)

    def parse(self, batch: RecordBatch, accounting: ByteAccounting) -> Parsed:
        if self.columns is None or not len(batch):
            return Parsed(batch)
        if self._columns is None:
            # Outside of an app no pre-scan has decided.
            self.decide(self.decision([batch]))
        return (self._columns or ElementColumns({})).parse(batch, self._encoding[1], accounting)

    @property
    def needs_decision(self) -> bool:
        return self.columns == "infer"

    def decision(self, batches: Iterable[RecordBatch]) -> dict[str, Any] | None:
        """The columns of the elements at the beginning of a file; None if it has none."""

        def sampled() -> Iterator[bytes]:
            size = 0
            for batch in batches:
                for element in batch.to_pylist():
                    if size >= SAMPLED_BYTES:
                        return
                    size += len(element)
                    yield element

        elements = list(sampled())  # to read them shows the encoding
        return paths_of(iter(elements), self._encoding[1], self.max_columns)

    def decide(self, decision: dict[str, Any] | None) -> None:
        if decision is not None and self.needs_decision:
            types = {path: ColumnType.of(kind) for path, kind in decision.items()}
            self._columns = ElementColumns(types, frozenset(self.null_values), takes_others=False)

    def _warn(self, block: BlockMetadata) -> None:
        """Say that a file has none of the elements: a tag that is not written as in the files gives no record."""
        names = ", ".join(shown(name.decode(errors="replace")) for name in self._names)
        logger.warning("no element %s, only %s url=%s", self.tag, names or "none", redacted(block.url))

    def _begin(self, source: ByteSource, block: BlockMetadata, accounting: ByteAccounting) -> int:
        """Where the search for elements begins; a file that cannot be searched is refused as a whole."""
        why = _why_not_searched(source)
        if not why:
            return 0
        self._has_element = True  # as far as is known
        accounting.refuse_file(source, block, f"{why}; convert such files to UTF-8 first, as with iconv")
        return source.size_bytes

    def complete_end(self, source: ByteSource) -> int | None:
        """The start of the element or comment that is in progress, found from the beginning of the file."""
        if _why_not_searched(source):
            return None
        view = FileView(source)
        position, held = 0, self.chunk_bytes
        while position < source.size_bytes:
            data = view.move(position, position + held).tobytes()
            *_, following, is_torn = self._elements(data, len(data), False)
            if self._is_long(len(data) - following, is_torn):
                break  # it is refused, and need not end for that
            if view.is_at_end:
                return position + following if is_torn or self._may_begin(data[following:]) else source.size_bytes
            position += following
            held = self.chunk_bytes if following else 2 * held
        return source.size_bytes

    def _may_begin(self, rest: bytes) -> bool:
        """Whether the last bytes may be the beginning of a tag, comment or the like."""
        if not rest:
            return False
        hiding = (*ASIDES, b"<!DOCTYPE")
        return (b"<" + self.tag.encode()).startswith(rest) or any(
            start.startswith(rest[: len(start)]) for start in hiding
        )

    def _is_long(self, length: int, is_element: bool) -> bool:
        """Whether an element, or a comment or the like, that does not end in so many bytes is refused."""
        return length > (self.max_record if is_element else max(self.max_record, self._reach))

    def _refuse(self, block: BlockMetadata, offset: int, length: int, is_element: bool = True) -> None:
        what = f"the element {self.tag}" if is_element else "a comment, CDATA section or instruction"
        reason = f"{what} is longer than max_record, {self.max_record} bytes"
        raise RecordError(reason, url=block.url, offset=offset, length=length, hint="raise max_record")

    def _elements(self, data: bytes, limit: int, is_at_end: bool) -> tuple[Positions, Positions, int, bool]:
        """Elements that begin before limit, where to continue, and whether the element there is torn."""
        find = PLAIN_ELEMENTS.after(len(data))
        begins, ends = (NONE, NONE) if find is None else find(data, self.tag.encode())
        count = int(np.searchsorted(begins, limit))
        starts, stops = list[int](), list[int]()
        position = int(ends[count - 1]) if count else 0
        is_torn = False
        while match := self._outside.search(data, position):
            if match.start() >= limit:
                position = match.start()
                break
            is_element = match[0] not in ASIDES and match[0] != b"<!DOCTYPE"
            end = self._end_of_element(data, match) if is_element else _end_of_aside(data, match)
            if end < 0:
                position, is_torn = match.start(), is_element
                break
            if is_element:
                starts.append(match.start())
                stops.append(end)
            position = end
        else:
            # Something may begin in the last bytes; a place before the last match is text, whatever follows.
            torn = data.rfind(b"<", max(position, len(data) - self._reach))
            position = len(data) if torn < 0 or is_at_end else torn
        begins = np.append(begins[:count], starts).astype(np.int64)
        ends = np.append(ends[:count], stops).astype(np.int64)
        return begins, ends, position, is_torn

    def _end_of_element(self, data: bytes, match: re.Match[bytes]) -> int:
        depth = 0
        found: re.Match[bytes] | None = match
        while found is not None:
            if found[0] in ASIDES:
                end = _end_of_aside(data, found)
            else:
                rest = REST_OF_TAG.match(data, found.end())
                end = rest.end() if rest else -1
                if found[0].startswith(b"</"):
                    depth -= 1
                elif end >= 0 and data[end - 2 : end - 1] != b"/":
                    depth += 1
            if end < 0 or depth == 0:
                return end
            found = self._inside.search(data, end)
        return -1


def _skip(start: int, end: int, accounting: ByteAccounting) -> None:
    if start < end:
        accounting.skip(start, end - start, "between elements")


def _end_of_aside(data: bytes, match: re.Match[bytes]) -> int:
    """The end of a comment, CDATA section, instruction or document type; -1 if it is not in data."""
    if match[0] == b"<!DOCTYPE":
        rest = _REST_OF_DOCTYPE.match(data, match.end())
        return rest.end() if rest else -1
    closing = ASIDES[match[0]]
    found = data.find(closing, match.end())
    return found + len(closing) if found >= 0 else -1


def _declared_encoding(source: ByteSource) -> str:
    declared = _DECLARED.match(read_exactly(source, 0, SHOWN_BYTES).tobytes().removeprefix(BYTE_ORDER_MARK))
    name = declared[1].decode() if declared else "utf-8"
    return "utf-8" if _UNICODE.fullmatch(name) else name


def _why_not_searched(source: ByteSource) -> str:
    """Why no elements can be found in a file; "" if they can."""
    encoding, evidence = encoding_of(source)
    if encoding:
        return f"the file is in {encoding.upper()}, {evidence}"
    name = _declared_encoding(source)
    try:
        Charset.named(name)
    except ValueError as error:
        return f"the file declares the encoding {name}: {error}"
    return ""
