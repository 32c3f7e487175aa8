"""Finds the format of files, and proves it by reading them."""

from __future__ import annotations

import itertools
import json
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any

from dagflow.cli.output import count, on_one_line, place
from dagflow.cli.scaffold.app_text import TARGETS, app_text
from dagflow.cli.scaffold.column_types import VALUES_BY_EXCEPTION, ColumnGuess, guess_column
from dagflow.cli.scaffold.format_guess import FormatGuess, guess_format
from dagflow.engine.preview import Preview, preview
from dagflow.engine.preview_chain import PreviewOptions, first_files
from dagflow.errors import DagflowError, MissingError, SpecError
from dagflow.frozen import frozen
from dagflow.plan.load import load_app
from dagflow.plan.logical import LogicalPlan
from dagflow.spec.yaml_parser import scalar
from dagflow.storage.file_kinds import UNTYPED_FORMATS, compression_name_of_url
from dagflow.storage.location import archive_of

_PIECE_BYTES = 64 << 10
_PIECES = 4
_MOST_FILES = 5
"""Files that are looked at if all names end alike; otherwise one of each ending at least."""

_MOST_ENDS = 12
_MOST_LISTED = 1000
_SHOWN_FILES = 5

_APP = """\
name: first-bytes
attributes: {checkpoint: journal}
steps:
  - files: FILES
    block_size: 1TiB
    batch_bytes: 0
  - read: {type: fixed, length: LENGTH, tail: keep}
"""


@frozen
class FileHead:
    """The beginning of a file.

    Attributes:
        data: Its first bytes, decompressed.
        files: How many of the listed files have names that end like its own.
    """

    url: str
    data: bytes
    is_whole: bool
    files: int = 1

    @property
    def end(self) -> str:
        """The end of its name, such as .csv.gz, in lower case; "" for none."""
        return _end_of(self.url)


def read_heads(location: str) -> list[FileHead]:
    """The beginnings of some files at a location, among them one of each ending of names, without empty ones.

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
    for url, files in _looked_at(first_files(app, _MOST_LISTED)):
        limits = PreviewOptions(at="read.messages", file=url, records=_PIECES, read_bytes=_PIECE_BYTES * _PIECES)
        found = require_read(preview(app, limits))
        if data := b"".join(record.values["record"] for record in found.records):
            heads.append(FileHead(url, data, found.is_complete and len(data) < _PIECE_BYTES * _PIECES, files))
    if not heads:
        raise MissingError("there is no file with anything in it", url=location)
    return heads


def _looked_at(urls: Sequence[str]) -> list[tuple[str, int]]:
    """Files to look at, in their order, each with the number of files whose names end alike."""
    by_end: dict[str, list[str]] = {}
    for url in urls:
        by_end.setdefault(_end_of(url), []).append(url)
    firsts = {alike[0] for alike in itertools.islice(by_end.values(), _MOST_ENDS)}
    others = [url for url in urls if url not in firsts]
    chosen = firsts | set(others[: max(0, _MOST_FILES - len(firsts))])
    return [(url, len(by_end[_end_of(url)])) for url in urls if url in chosen]


def _end_of(url: str) -> str:
    name = PurePosixPath((archive_of(url) or ("", url))[1]).name.lower()
    stem = name[: -len(PurePosixPath(name).suffix)] if compression_name_of_url(name) else name
    return name[len(PurePosixPath(stem).stem) :]


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


@frozen
class AppGuess:
    """A format that was tried.

    Attributes:
        head: The first file that has it.
        selection: The property of the splitter, as YAML, that leaves out files of other formats; "" for none.
    """

    format: FormatGuess
    evidence: tuple[str, ...]
    warnings: tuple[str, ...]
    head: FileHead
    selection: str = ""


Choose = Callable[[Sequence[str]], str]
"""Chooses among the formats of files, the most common one first."""


def guess_app(location: str, heads: Sequence[FileHead], choose: Choose | None = None) -> AppGuess:
    """The format of files, as most of them have it, or as it is chosen if they have several.

    Columns that a file contradicts become text. Files of other formats are left out by the ends of their names.

    Args:
        choose: Called with the names of the formats, if any; may give another name, which all files are read by. None
            for the most common one.

    Raises:
        DagflowError: No file can be read as records.
    """
    guesses, problems = [], dict[FileHead, DagflowError]()
    for head in heads:
        try:
            guesses.append((head, guess_format(head.data, is_whole=head.is_whole)))
        except DagflowError as error:
            problems[head] = error
    looked = Counter(head.end for head in heads)
    counts: dict[Any, float] = {}
    for head, guess in guesses:
        counts[guess.kind] = counts.get(guess.kind, 0) + head.files / looked[head.end]
    # Lines without a structure are mostly what stands beside the data, such as a README.
    kinds = sorted(counts, key=lambda kind: (counts[kind], kind[0] != "lines"), reverse=True)
    names = list(dict.fromkeys(kind[0] for kind in kinds))
    name = choose(names) if choose is not None else next(iter(names), "")
    if not name:
        head, problem = next(iter(problems.items()))
        raise DagflowError(f"{place(head.url)}: {problem.message}", hint=problem.hint) from problem
    if name not in names:
        try:
            return _tried(FormatGuess(name, evidence=("--format asks for it",)), location, heads, ())
        except SpecError as error:
            message = error.problems[0].message
            way = "take --format lines, and write this format with the option into the app"
            raise DagflowError(f"--format: {message}", hint=way if "needs option" in message else "") from error
    kind = next(kind for kind in kinds if kind[0] == name)
    of_kind = [guess for _, guess in guesses if guess.kind == kind]
    # A file without quotes within quotes does not show how they are written.
    chosen = next((guess for guess in of_kind if guess.options.keys() & _QUOTING), of_kind[0])
    alike = [head for head, guess in guesses if guess.kind == kind]
    ends = {head.end for head, guess in guesses if guess.name == name}
    what = {head: guess.name for head, guess in guesses if guess.name != name}
    what |= {head: error.message for head, error in problems.items()}
    left_out = {head: why for head, why in what.items() if head.end not in ends}
    warnings = [
        f"{place(head.url)} {_otherness(guess, chosen)}; give files of one kind only, such as by a glob"
        for head, guess in guesses
        if guess.kind != kind and head not in left_out
    ]
    warnings += [f"{place(head.url)}: {error.message}" for head, error in problems.items() if head not in left_out]
    found = _tried(chosen, location, alike, warnings)
    if not left_out:
        return found
    shown = [f"{place(head.url)} ({why})" for head, why in left_out.items()][:_SHOWN_FILES]
    more = sum(head.files / looked[head.end] for head in left_out) - len(shown)
    shown += [f"{count(round(more), 'more file')}"] if more >= 1 else []
    rule = _selection(ends, {head.end for head in left_out})
    return replace(found, evidence=(*found.evidence, f"left out by their names: {', '.join(shown)}"), selection=rule)


def _selection(ends: set[str], others: set[str]) -> str:
    """The property that leaves out names by their ends, whatever their case.

    Names that were not seen are selected, so that they are not missed; ignore_pattern would leave out directories with
    a name without an end.
    """
    if others == {""}:
        return f"file_pattern: {scalar('.+[.].+')}"
    is_ignored = "" not in others
    patterns = "|".join(re.escape(end) for end in sorted(others if is_ignored else ends))
    return f"{'ignore' if is_ignored else 'file'}_pattern: {scalar(f'(?i).*({patterns})')}"


def _tried(chosen: FormatGuess, location: str, alike: Sequence[FileHead], warnings: Sequence[str]) -> AppGuess:
    format, refused = _proved(chosen, location, alike)
    sizes = sum(len(head.data) for head in alike)
    names = ", ".join(place(head.url) for head in alike[:_NAMED_FILES])
    more = f" and {len(alike) - _NAMED_FILES} more" if len(alike) > _NAMED_FILES else ""
    evidence = f"seen in the first {sizes:,} bytes of {names}{more}"
    return AppGuess(format, (evidence,), (*warnings, *refused), alike[0])


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


def with_types(format: FormatGuess, location: str, head: FileHead) -> FormatGuess:
    """The format with a type for each column that it would infer; as it was where a record does not fit them.

    Text is a date or a time where all of it is; for a table that keeps its types, which those of a first file may be
    too wide for.
    """

    def read(format: FormatGuess) -> Preview:
        limits = PreviewOptions(at="read.messages", file=head.url, records=_CHECKED_RECORDS)
        return require_read(preview(plan_of(app_text("proof", location, format, "out")), limits))

    found = read(format)
    values = {name: [each.values.get(name) for each in found.records] for name in found.columns}
    columns = tuple(_typed(name, kind, values[name]) for name, kind in found.columns.items())
    typed = replace(format, infers=False, columns=columns)
    try:
        return format if not columns or found.rejects or read(typed).rejects else typed
    except SpecError:  # such as a name of a member that types cannot hold
        return format


def _typed(name: str, kind: str, values: Sequence[Any]) -> ColumnGuess:
    present = [value for value in values if value is not None]
    if kind not in ("string", "double") or not present:
        return ColumnGuess(name, kind.replace("list<item: ", "list<"), "")
    guess = guess_column(name, [value if isinstance(value, str) else repr(value) for value in present])
    fits = ("date", "timestamp") if kind == "string" else ("decimal",)
    is_exact = isinstance(guess.type, str) and guess.type.startswith(fits) and not guess.null_words
    return guess if is_exact and not guess.exceptions else ColumnGuess(name, kind, guess.evidence)


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
