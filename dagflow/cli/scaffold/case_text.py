"""Writes a test of an app that was made for files, from the first of their records."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from dagflow.cli.scaffold.app_guess import FileHead, plan_of, require_read
from dagflow.cli.scaffold.app_text import target_of
from dagflow.cli.scaffold.format_guess import FormatGuess
from dagflow.engine.preview import PreviewOptions, preview
from dagflow.spec.yaml_text import behind_key, scalar
from dagflow.storage.location import is_local
from dagflow.testing.app_cases import failures_of, read_cases
from dagflow.testing.case_update import update_file

CASES_FILE = "test_app.yaml"

_RECORDS = 3
_MOST_ROWS = 20
"""Rows of a file that cannot be cut."""

_INLINE_BYTES = 2000
_PACKED = frozenset([".gz", ".bz2", ".xz", ".zst", ".lz4", ".sz", ".bgz"])
_FOLDER = "test_data"


@dataclass(frozen=True, slots=True)
class FirstRecords:
    name: str
    data: bytes

    @classmethod
    def of(cls, head: FileHead, app: str, format: FormatGuess) -> FirstRecords | None:
        """The records; None where a file cannot be cut, and is long."""
        limits = PreviewOptions(at="reader.messages", file=head.url, records=_MOST_ROWS + 1)
        offsets = [record.offset for record in require_read(preview(plan_of(app), limits)).records]
        if format.is_tabular and (len(offsets) > _MOST_ROWS or not head.is_whole):
            return None
        is_cut = len(offsets) > _RECORDS and not format.is_tabular
        end = offsets[_RECORDS] if is_cut else len(head.data)
        name = PurePosixPath(head.url)
        name = name.with_suffix("") if name.suffix.lower() in _PACKED else name
        # A name that begins with a dot or an underscore is hidden from a scan; YAML holds no bytes that are no UTF-8.
        shown = "".join(char if char.isprintable() else "_" for char in name.name)
        return cls(shown.lstrip("._") or "records", head.data[: end if end > 0 else len(head.data)])

    @property
    def text(self) -> str | None:
        """The sample as text that fits into a test; None where it has to be a file of its own."""
        try:
            text = self.data.decode()
        except UnicodeDecodeError:
            return None
        return text if len(text) <= _INLINE_BYTES and "\r" not in text else None


def write_case(folder: Path, sample: FirstRecords, format: FormatGuess, to: str) -> list[Path]:
    """Write a test that states the current output of the app for a sample.

    Returns:
        The files that were written; none where the app makes nothing of the sample alone.
    """
    file, data = folder / CASES_FILE, folder / _FOLDER / sample.name
    written = [file]
    if sample.text is None:
        data.parent.mkdir(exist_ok=True)
        data.write_bytes(sample.data)
        written.append(data)
    file.write_text("\n".join(_lines(sample, format, to)) + "\n", encoding="utf-8")
    (case,) = read_cases(str(file))
    update_file(str(file), [each.actual for each in failures_of(case) if each.actual is not None])
    (case,) = read_cases(str(file))
    if not failures_of(case):
        return written
    for path in written:
        path.unlink()
    if sample.text is None:
        data.parent.rmdir()
    return []


def _lines(sample: FirstRecords, format: FormatGuess, to: str) -> Iterator[str]:
    kind, path = target_of(to)
    is_inside = is_local(path) and not path.startswith("/") and path.split("/")[0] not in ("", "..")
    place = path if is_inside else "out"
    yield "# dagflow test runs this; after an intended change, dagflow test --update writes the new output here."
    yield "app: app.yaml"
    yield "tests:"
    yield "  the first records:"
    yield "    files:"
    if sample.text is None:
        yield f"      {scalar(f'in/{sample.name}')}: {{from: {scalar(f'{_FOLDER}/{sample.name}')}}}"
    else:
        yield f"      {scalar(f'in/{sample.name}')}:{behind_key(sample.text, 6)}"
    yield "    set:"
    yield "      splitter.files: in"
    if not is_inside:
        yield "      writer.path: out" if kind in ("", "parquet") else f"      writer.table: {scalar(f'{kind}:out')}"
    if format.has_columns:
        yield from ("    schema:", "      reader.messages:")
    if format.has_columns or kind:
        yield from ("    rows:", f"      {scalar(place)}:")
    elif sample.text is not None:
        yield from ("    output:", f"      {scalar(place)}:")
    yield from ("    records:", "      reader.messages:", "    rejected:")
