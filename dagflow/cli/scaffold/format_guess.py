"""Recognises the record format of a file by its first bytes."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from dagflow.cli.scaffold.column_types import ColumnGuess
from dagflow.cli.scaffold.csv_guess import NEARLY_ALL, guess_csv, uneven
from dagflow.errors import DagflowError
from dagflow.storage.file_kinds import kind_of_content, wide_encoding

_CLOCK = r"\d{1,2}:\d\d:\d\d"
_ISO = r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d"
_MONTH = r"[A-Z][a-z]{2}"
_STAMPS = (
    rf"\[?{_ISO}",
    rf"\[?[A-Z]+\]?:? +\[?{_ISO}",
    rf"<\d+>1 {_ISO}",
    rf"(<\d+>)?{_MONTH} [ \d]\d {_CLOCK}",
    rf"\[{_MONTH} {_MONTH} [ \d]\d {_CLOCK}",
    rf"\S+ \S+ \S+ \[\d\d/{_MONTH}/\d{{4}}:{_CLOCK}",
    rf"\[?(\d\d)?\d\d/\d\d/\d\d {_CLOCK}",
    rf"\[?\d{{1,2}}[-./](\d{{1,2}}|{_MONTH})[-./]\d{{4}} {_CLOCK}",
    rf"{_MONTH} \d{{1,2}}, \d{{4}} {_CLOCK}",
    rf"\d\d-\d\d {_CLOCK}\.\d{{3}}",
    rf"[A-Z]\d{{4}} {_CLOCK}\.\d",
    rf"\[?{_CLOCK}[.,]\d{{3}}",
)
"""How lines of logs begin: by ISO 8601, with a level before it, and as the programs write that many servers run."""
_BEHIND_STAMP = r"(:\d\d)?([.,]\d+|\d*)( \d{4})?( [AP]M)?( ?(Z|[+-]\d\d:?\d\d))?\]? +\S"
_FIELD = re.compile(r"[A-Za-z][\w-]*:(\s|$)")
_TAG = re.compile(r"""<(/?)([A-Za-z_][\w.:-]*)(?:\s(?:[^<>"']|"[^"]*"|'[^']*')*?)?(/?)>""")
_MOST_LINES = 1000


@dataclass(frozen=True, slots=True)
class FormatGuess:
    """The format that a file seems to have.

    Attributes:
        infers: Whether the reader finds out the columns itself.
    """

    name: str
    options: Mapping[str, Any] = field(default_factory=dict)
    evidence: tuple[str, ...] = ()
    columns: tuple[ColumnGuess, ...] = ()
    infers: bool = False

    @property
    def has_columns(self) -> bool:
        return bool(self.columns) or self.infers

    @property
    def kind(self) -> tuple[str, str, int, tuple[str, ...]]:
        """Equal for files that one reader can read: it finds columns by their names."""
        names = tuple(sorted(column.name for column in self.columns))
        return self.name, str(self.options.get("delimiter", "")), self.skipped, names

    @property
    def skipped(self) -> int:
        return int(self.options.get("skip_header", 0))

    def with_text(self, column: str, evidence: str) -> FormatGuess:
        columns = tuple(each.as_text(evidence) if each.name == column else each for each in self.columns)
        return replace(self, columns=columns)


def guess_format(head: bytes, *, is_whole: bool) -> FormatGuess:
    """The format of a file.

    Raises:
        DagflowError: The file is of a kind that is not read as records.
    """
    if kind := kind_of_content(head):
        raise DagflowError(f"it is {kind}, which no record format reads", hint="convert it to CSV or lines of JSON")
    wide, evidence = wide_encoding(head)
    if wide:
        others = "lines can be read in it, rows of csv only in UTF-8, as iconv makes it"
        return FormatGuess("lines", {"encoding": wide}, (f"it is in {wide}, {evidence}: {others}",))
    text, encoding = _decoded(head)
    if "\0" in text:
        raise DagflowError(
            f"it is binary: a zero byte at offset {head.index(0):,}",
            hint="formats for binary records are fixed, length_prefixed and whole_file; write the app yourself",
        )
    lines = text.splitlines()
    if not is_whole and len(lines) > 1:
        lines = lines[:-1]
    lines = lines[:_MOST_LINES]
    found = (
        _json(lines)
        or _log(lines)
        or _xml(text)
        or _document(text)
        or _csv(text, encoding, is_whole=is_whole)
        or _paragraphs(lines)
    )
    return found or FormatGuess("lines", {}, (f"{len(lines):,} lines without another structure", *uneven(lines)))


def _decoded(head: bytes) -> tuple[str, str]:
    for cut in range(4):
        # The last character may be cut.
        try:
            return head[: len(head) - cut].decode("utf-8-sig"), "utf-8"
        except UnicodeDecodeError:
            continue
    is_windows = any(0x80 <= byte < 0xA0 for byte in head)
    encoding = "cp1252" if is_windows else "latin-1"
    return head.decode(encoding, "replace"), encoding


def _json(lines: list[str]) -> FormatGuess | None:
    objects = []
    filled = [line for line in lines if line.strip()]
    for line in filled:
        with suppress(ValueError, RecursionError):
            objects.append(json.loads(line))
    objects = [value for value in objects if isinstance(value, dict)]
    if not objects or len(objects) < NEARLY_ALL * len(filled):
        return None
    members = list(dict.fromkeys(name for each in objects for name in each))
    all_are = f"each of {len(objects):,} lines is a JSON object"
    some_are = f"{len(objects):,} of {len(filled):,} lines are JSON objects, and the others are refused"
    evidence = (all_are if len(objects) == len(filled) else some_are, f"members: {', '.join(members[:12])}")
    return FormatGuess("json_lines", {}, evidence, infers=True)


def _xml(text: str) -> FormatGuess | None:
    if not text.lstrip().startswith("<"):
        return None
    depth, counts = 0, Counter[str]()
    for found in _TAG.finditer(text):
        is_end, name, is_empty = found.groups()
        depth -= bool(is_end)
        if depth == 1 and not is_end:
            counts[name] += 1
        depth += not (is_end or is_empty)
    ((tag, count),) = counts.most_common(1) or [("", 0)]
    if count < 2:
        return FormatGuess("whole_file", {}, ("an XML document without elements that repeat",))
    return FormatGuess("xml", {"tag": tag}, (f"{count:,} elements <{tag}> below the outermost one",))


def _document(text: str) -> FormatGuess | None:
    """The format of a JSON value over several lines, which no format divides, but an operator may; None otherwise."""
    start = text.lstrip()[:1]
    if not start or start not in "[{" or not re.match(r"[\[{]\s*([\[{\"\]}\d]|true|false|null|-)", text.lstrip()):
        return None
    return FormatGuess("whole_file", {}, ("a JSON document over several lines, which is one record",))


def _log(lines: list[str]) -> FormatGuess | None:
    for pattern in _STAMPS if lines else ():
        stamp = re.compile(pattern + _BEHIND_STAMP)
        stamped = sum(bool(stamp.match(line)) for line in lines) if stamp.match(lines[0]) else 0
        if stamped < 2:
            continue
        if stamped == len(lines):
            return FormatGuess("lines", {}, (f"each of {stamped:,} lines begins with a time",))
        evidence = f"{stamped:,} of {len(lines):,} lines begin with a time, and the others continue them"
        return FormatGuess("regex", {"pattern": pattern}, (evidence,))
    return None


def _csv(text: str, encoding: str, *, is_whole: bool) -> FormatGuess | None:
    found = guess_csv(text, is_whole=is_whole)
    if found is None:
        return None
    options: dict[str, Any] = {}
    evidence = list(found.evidence)
    if found.delimiter != ",":
        options["delimiter"] = found.delimiter
    options |= found.quoting
    if found.skipped:
        options["skip_header"] = found.skipped
    if not found.has_header:
        options["header"] = False
    if encoding != "utf-8":
        options["encoding"] = encoding
        evidence.append("bytes that are no UTF-8")
    words = sorted({word for column in found.columns for word in column.null_words})
    if words:
        options["null_values"] = ["", *words]
    return FormatGuess("csv", options, tuple(evidence), found.columns)


def _paragraphs(lines: list[str]) -> FormatGuess | None:
    """Blocks of "Name: value" lines between blank lines, as of mails and package lists."""
    filled = [line for line in lines if line.strip() and not line[0].isspace()]
    named = sum(bool(_FIELD.match(line)) for line in filled)
    blanks = sum(not line.strip() for line in lines)
    if not filled or not blanks or named < 0.9 * len(filled):
        return None
    return FormatGuess("paragraphs", {}, (f"{named:,} lines such as {filled[0][:30]!r}, and {blanks:,} blank ones",))
