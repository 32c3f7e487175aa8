"""Finds the format of files, and proves it by reading them."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dagflow.cli.output import count, on_one_line, place
from dagflow.cli.scaffold.app_text import TARGETS, app_text
from dagflow.cli.scaffold.column_types import VALUES_BY_EXCEPTION, ColumnGuess, guess_column
from dagflow.cli.scaffold.format_guess import FormatGuess, guess_format
from dagflow.engine.preview import Preview, preview
from dagflow.engine.preview_chain import PreviewOptions
from dagflow.engine.preview_source import first_files
from dagflow.errors import DagflowError, MissingError, SpecError
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.storage.file_kinds import UNTYPED_FORMATS

_PIECE_BYTES = 64 << 10
_PIECES = 4
_MOST_FILES = 5
"""Files that are looked at."""

_APP = """\
name: first-bytes
attributes: {checkpoint: journal}
steps:
  - files: FILES
    block_size: 1TiB
    batch_bytes: 0
  - read: {type: fixed, length: LENGTH, tail: keep}
"""


@dataclass(frozen=True, slots=True)
class FileHead:
    """The beginning of a file.

    Attributes:
        data: Its first bytes, decompressed.
    """

    url: str
    data: bytes
    is_whole: bool


def read_heads(location: str) -> list[FileHead]:
    """The beginnings of the first files at a location, without those that are empty.

    Raises:
        MissingError: The location has no files, or only empty ones.
        DagflowError: The files cannot be listed, read or decompressed; or no app can name them.
    """
    if any("\ud800" <= char <= "\udfff" for char in location):
        raise DagflowError(
            f"{on_one_line(location)}: the name is not UTF-8, and an app cannot hold it",
            hint="put a question mark in the place of each such byte, as in 'a?b.csv', or name the directory",
        )
    app = plan_of(_APP.replace("FILES", json.dumps([location])).replace("LENGTH", str(_PIECE_BYTES)))
    heads = []
    for url in first_files(app, _MOST_FILES):
        limits = PreviewOptions(at="read.messages", file=url, records=_PIECES, read_bytes=_PIECE_BYTES * _PIECES)
        found = require_read(preview(app, limits))
        if data := b"".join(record.values["record"] for record in found.records):
            heads.append(FileHead(url, data, found.is_complete and len(data) < _PIECE_BYTES * _PIECES))
    if not heads:
        raise MissingError("there is no file with anything in it", url=location)
    return heads


def require_read(found: Preview) -> Preview:
    if found.error is not None:
        raise found.error
    return found


def plan_of(text: str) -> LogicalPlan:
    with tempfile.TemporaryDirectory(prefix="dagflow-init-") as directory:
        path = Path(directory, "app.yaml")
        path.write_text(text, encoding="utf-8")
        return load_app(path)


def require_target(to: str) -> None:
    """Refuse a target that no app can write to."""
    try:
        plan_of(app_text("proof", "in", FormatGuess("parquet"), to))
    except SpecError as error:
        raise DagflowError(f"--to: {error.problems[0].message}", hint=f"give {TARGETS}") from error


_CHECKED_RECORDS = 1000
_NAMED_FILES = 2
_QUOTING = {"escape", "quote", "stray_quotes"}
_COLUMN = re.compile(r"column '(.*?)' \(")


@dataclass(frozen=True, slots=True)
class AppGuess:
    """A format that was tried.

    Attributes:
        head: The first file that has it.
    """

    format: FormatGuess
    evidence: tuple[str, ...]
    warnings: tuple[str, ...]
    head: FileHead


def guess_app(location: str, heads: Sequence[FileHead]) -> AppGuess:
    """The format of files, as most of those that were looked at have it.

    Columns that a file contradicts become text.

    Raises:
        DagflowError: A file cannot be read as records.
    """
    guesses = []
    for head in heads:
        try:
            guesses.append(guess_format(head.data, is_whole=head.is_whole))
        except DagflowError as error:
            raise DagflowError(f"{place(head.url)}: {error.message}", hint=error.hint) from error
    counts = Counter(guess.kind for guess in guesses)
    kind = counts.most_common(1)[0][0]
    of_kind = [guess for guess in guesses if guess.kind == kind]
    # A file without quotes within quotes does not show how they are written.
    chosen = next((guess for guess in of_kind if guess.options.keys() & _QUOTING), of_kind[0])
    alike = [head for head, guess in zip(heads, guesses, strict=True) if guess.kind == kind]
    warnings = [
        f"{place(head.url)} {_otherness(guess, chosen)}; give files of one kind only, such as by a glob"
        for head, guess in zip(heads, guesses, strict=True)
        if guess.kind != kind
    ]
    format, refused = _proved(chosen, location, alike)
    warnings += refused
    sizes = sum(len(head.data) for head in alike)
    names = ", ".join(place(head.url) for head in alike[:_NAMED_FILES])
    more = f" and {len(alike) - _NAMED_FILES} more" if len(alike) > _NAMED_FILES else ""
    return AppGuess(format, (f"seen in the first {sizes:,} bytes of {names}{more}",), tuple(warnings), alike[0])


def _otherness(guess: FormatGuess, chosen: FormatGuess) -> str:
    """How the format of a file differs from that of the files that the app is for."""
    if guess.name != chosen.name or not guess.columns:
        return f"seems to be something else ({guess.name})"
    names = {column.name for column in chosen.columns}
    lacking = sorted(names - {column.name for column in guess.columns})
    added = [column.name for column in guess.columns if column.name not in names]
    found = [f"lacks {', '.join(lacking)}"] if lacking else []
    found += [f"has {', '.join(added)} as well"] if added else []
    if found:
        return f"has other columns: it {' and '.join(found)}"
    if guess.skipped != chosen.skipped:
        return f"has {count(guess.skipped, 'line')} before its rows, and skip_header is {chosen.skipped}"
    return "has another delimiter"


def _proved(format: FormatGuess, location: str, heads: Sequence[FileHead]) -> tuple[FormatGuess, list[str]]:
    """The format, with columns as text if later values contradict their type; and records that are refused even so."""
    app = plan_of(app_text("proof", location, format, "out"))
    limits = (PreviewOptions(at="read.messages", file=head.url, records=_CHECKED_RECORDS) for head in heads)
    refused = [require_read(preview(app, of_file)) for of_file in limits]
    if format.is_tabular and not format.columns:
        columns = refused[0].columns.items()
        names = ", ".join(f"{name} {kind}" for name, kind in columns)
        format = replace(format, evidence=(*format.evidence, f"columns of the first file: {names}"))
        if format.name in UNTYPED_FORMATS and columns:
            format = replace(format, columns=tuple(ColumnGuess(name, kind, "") for name, kind in columns))
            return _proved(format, location, heads)
    if format.name == "xml" and format.infers:
        return _proved(replace(format, infers=False, columns=_typed_columns(refused)), location, heads)
    wrong = {name: reason for each in refused for name, reason in _wrong_columns(each, format).items()}
    if format.infers and wrong:
        evidence = (*format.evidence, "columns: infer would refuse objects with other members or types")
        return _proved(replace(format, infers=False, evidence=evidence), location, heads)
    mended = format
    for column in [each for each in format.columns if each.name in wrong and each.type != "string"]:
        mended = mended.with_text(column.name, wrong[column.name].partition(", in:")[0])
    if mended != format:
        return _proved(mended, location, heads)
    return format, [
        f"{place(head.url)}: {count(each.reject_count, 'record')} refused, such as: {each.rejects[0].reason}"
        for head, each in zip(heads, refused, strict=True)
        if each.rejects
    ]


def _typed_columns(previews: Sequence[Preview]) -> tuple[ColumnGuess, ...]:
    """The types of columns that previews have as text, by the values of all of them."""
    texts: dict[str, list[str]] = {}
    lists = {name for each in previews for name, kind in each.columns.items() if kind.startswith("list")}
    for record in itertools.chain.from_iterable(each.records for each in previews):
        for name, value in record.values.items():
            values = value if isinstance(value, list) else [value or ""]
            texts.setdefault(name, []).extend(text.strip() for text in values)
    guesses = (guess_column(name, values) for name, values in texts.items())
    # Words that stand for no value in one column are text in others.
    plain = (each.as_text("a word that is no value") if each.null_words else each for each in guesses)
    return tuple(
        replace(each, type=f"list<{each.type if isinstance(each.type, str) else 'string'}>")
        if each.name in lists
        else each
        for each in plain
    )


def _wrong_columns(found: Preview, format: FormatGuess) -> dict[str, str]:
    """The columns that have another type in a file than the format says, with a reason for each.

    A column keeps its type if its values refuse few records of many, and so does a schema that is inferred.
    """
    reasons = [(match[1], each.reason) for each in found.rejects if (match := _COLUMN.search(each.reason)) is not None]
    rows = found.reject_count + sum(each.given.get("messages", 0) for each in found.operators if each.name == "read")
    counts = Counter(name for name, _ in reasons)
    return {
        name: why
        for name, why in reasons
        if (found.reject_count if format.infers else counts[name]) * VALUES_BY_EXCEPTION > rows
    }
