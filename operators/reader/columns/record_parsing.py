"""The ways in which text becomes columns: for the operator Parse, and for formats whose records are text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from dagflow.api.properties import Columns, HasProperties
from dagflow.api.records import RecordBatch
from dagflow.api.regular_expressions import Pattern, closed
from dagflow.late import compute as pc
from dagflow.storage.columns import borders_of, bytes_of
from dagflow.suggestions import did_you_mean
from operators.reader.byte_source import Bytes
from operators.reader.columns.key_values import KeyValue
from operators.reader.columns.types import ColumnTypes, refuse_optional
from operators.reader.columns.typing import in_records, typed, valid_text, without_refused, without_skipped
from operators.reader.formats.base import ByteAccounting, Parsed
from operators.reader.formats.json_lines import JsonLines
from operators.reader.scanning.framing import pieces_of
from operators.reader.scanning.search import CR, LF, Positions, positions_of


class Split(BaseModel):
    """Fields between delimiters."""

    model_config = ConfigDict(extra="forbid")

    delimiter: Annotated[str, Field(min_length=1, description="separator of fields")]
    names: Annotated[Columns, Field(description="the name of each field, in order")]


class RecordParsing(HasProperties):
    """Makes columns of texts, by one of five ways: regex, split, key_value, fields or json.

    A text that does not match, or whose fields are not of their types, is refused. Empty fields are null if the type is
    not text.
    """

    regex: Annotated[
        Pattern | None,
        Field(description="an RE2 expression that matches a whole record, whose named groups become columns"),
    ] = None
    split: Annotated[Split | None, Field(description="fields between delimiters")] = None
    key_value: Annotated[KeyValue | None, Field(description="pairs of key and value, such as a=1 b=2")] = None
    fields: Annotated[
        bool,
        Field(description="lines of name, colon and value, as in mails and package lists; columns names those to take"),
    ] = False
    json: Annotated[bool, Field(description="a JSON object, whose members are those of columns")] = False
    columns: Annotated[
        ColumnTypes,
        Field(
            description="a type for each column that is not text, such as int64 or {type: timestamp, format: "
            "'%d/%b/%Y'}; all columns of fields and json"
        ),
    ] = {}  # noqa: RUF012  # a default, which pydantic copies
    unmatched: Annotated[
        str, Field(pattern="^(reject|drop)$", description="what happens to records that regex does not match")
    ] = "reject"

    _names: list[str]
    _named_fields: NamedFields | None = None

    def choose_way(self, otherwise: str | None = None) -> bool:
        """Check the properties, and prepare for the way that they name.

        Args:
            otherwise: The way of columns for which they name none; "" where columns need one; None where all texts do.

        Returns:
            Whether texts become columns.
        """
        ways: dict[str, Any] = {name: getattr(self, name) for name in ("regex", "split", "key_value", "fields", "json")}
        chosen = [name for name, value in ways.items() if value]
        if not chosen and otherwise and self.columns:
            chosen = [otherwise]
        if len(chosen) > 1 or (not chosen and (self.columns or otherwise is None)):
            raise ValueError(f"give exactly one of {', '.join(ways)}; got {', '.join(chosen) or 'none'}")
        if self.unmatched == "drop" and self.regex is None:
            raise ValueError("unmatched: only regex can leave records unmatched")
        refuse_optional(self.columns)
        way = chosen[0] if chosen else ""
        if way in ("fields", "json") and not self.columns:
            raise ValueError(f"{way} needs columns, as columns: {{id: int64, name: string}}")
        self._names = list(self.columns)
        if self.regex is not None:
            self._names = _groups_of(self.regex)
        elif self.split is not None:
            self._names = self.split.names
        elif self.key_value is not None:
            self._names = self.key_value.keys
        twice = [name for name in self._names if self._names.count(name) > 1]
        if twice:
            raise ValueError(f"'{twice[0]}' is there twice")
        for name, kind in self.columns.items():
            if kind.is_nested and way != "json":
                raise ValueError(f"columns: '{name}' is {kind.name}, which json alone has")
            if name not in self._names:
                raise ValueError(f"columns: there is no '{name}'{did_you_mean(name, self._names)}")
        self._named_fields = NamedFields(self._names) if way == "fields" else None
        return bool(way)

    def parsed_schema(self) -> pa.Schema:
        """The columns that texts become."""
        kinds = [self.columns[name].arrow if name in self.columns else pa.string() for name in self._names]
        return pa.schema(list(zip(self._names, kinds, strict=True)))

    def parse_texts(self, batch: RecordBatch, rejects: ByteAccounting) -> Parsed:
        """The columns of raw records; those that are refused or dropped are reported."""
        texts = valid_text(batch, rejects)
        if not len(texts):
            return Parsed(texts)
        if self.json:
            return JsonLines(columns=self.columns).parse(texts, rejects)
        values = pc.cast(texts.record, pa.string())
        matches, columns = self._fields_of(values)
        if self.unmatched == "drop":
            kept = without_skipped(texts, ~matches, "regex does not match", rejects)
        else:
            rows = np.flatnonzero(~matches)
            refused = self._why_not(values.take(pa.array(rows))) if len(rows) else []
            reasons = dict(zip(rows.tolist(), refused, strict=True))
            kept = without_refused(texts, in_records(reasons, texts), rejects) if reasons else texts
        if not len(kept):
            return Parsed(kept)
        mask = pa.array(matches)
        rows_of_text = pa.RecordBatch.from_arrays([column.filter(mask) for column in columns], self._names)
        return typed(Parsed(kept, rows_of_text), self.columns, ("",), rejects)

    def _why_not(self, texts: pa.StringArray) -> list[str]:
        if self.split is not None:
            counts = (text.count(self.split.delimiter) + 1 for text in texts.to_pylist())
            return [f"the record has {count} fields; there are {len(self._names)} names" for count in counts]
        way = self.key_value or self._named_fields
        return ["the record does not match regex"] * len(texts) if way is None else way.why_not(texts)

    def _fields_of(self, values: Any) -> tuple[Any, list[Any]]:
        if self.regex is not None:
            groups = pc.extract_regex(values, _whole(self.regex))
            return _bools(pc.is_valid(groups)), [pc.struct_field(groups, name) for name in self._names]
        if self.split is not None:
            lists = pc.split_pattern(values, self.split.delimiter)
            matches = _bools(pc.equal(pc.list_value_length(lists), len(self._names)))
            starts = np.asarray(lists.offsets[:-1])
            positions = [pa.array(starts + index, mask=~matches) for index in range(len(self._names))]
            return matches, [lists.values.take(each) for each in positions]
        way = self.key_value or self._named_fields
        found = [] if way is None else way.values(values)
        return np.any([_bools(pc.is_valid(column)) for column in found], axis=0), found


def _bools(mask: Any) -> Any:
    return pc.fill_null(mask, False).to_numpy(zero_copy_only=False)


def _whole(regex: str) -> str:
    return f"^(?:{closed(regex)})$"


def _groups_of(regex: str) -> list[str]:
    try:
        found = pc.extract_regex(pa.array([""]), _whole(regex))
    except pa.ArrowInvalid as error:
        raise ValueError(f"regex {regex!r} is not a valid RE2 expression with named groups: {error}") from None
    names = [field.name for field in found.type]
    if not names:
        raise ValueError(f"regex {regex!r} has no named group, as (?P<host>[^ ]+)")
    return names


_COLON = ord(":")
_BLANKS = (ord(" "), ord("\t"))


class NamedFields:
    """The fields of texts that have some names; a line that begins with a blank goes on with the value before it."""

    def __init__(self, names: Sequence[str]) -> None:
        self._names = pa.array(names, pa.string())

    def values(self, texts: pa.StringArray) -> list[pa.StringArray]:
        """The values of each name, without blanks around them.

        Null where a text does not have it, and in all of a text that has another line, or a name of these twice.
        """
        return self._found(texts)[0]

    def why_not(self, texts: pa.StringArray) -> list[str]:
        """Why each of some texts has no values."""
        reasons = self._found(texts)[1]
        return [reasons.get(at, "none of the fields is there") for at in range(len(texts))]

    def _found(self, texts: pa.StringArray) -> tuple[list[pa.StringArray], dict[int, str]]:
        """The values, and for each text that has none because of one of its lines the reason."""
        borders, data = borders_of(texts).astype(np.int64), bytes_of(texts)
        borders, buffer = borders - borders[0], pa.py_buffer(data)
        starts, ends, colons = _lines(data, borders)
        rows = np.searchsorted(borders, starts, "right") - 1
        others = np.flatnonzero((colons <= starts) | np.isin(data[starts], _BLANKS))
        refused, firsts = np.unique(rows[others], return_index=True)
        feeds = positions_of(data == LF)
        numbers = np.searchsorted(feeds, starts[others[firsts]]) - np.searchsorted(feeds, borders[refused]) + 1
        reasons = {
            row: f"line {number} has no name before a colon, and goes on with no other"
            for row, number in zip(refused.tolist(), numbers.tolist(), strict=True)
        }
        named = np.setdiff1d(np.arange(len(starts)), others, assume_unique=True)
        found = pc.index_in(pieces_of(buffer, starts[named], colons[named]).cast(pa.string()), self._names)
        is_found = found.is_valid().to_numpy(zero_copy_only=False)
        named, found = named[is_found], found.drop_null().to_numpy()
        values = pc.ascii_trim_whitespace(pieces_of(buffer, colons[named] + 1, ends[named]).cast(pa.string()))
        places = []
        for index, name in enumerate(self._names.to_pylist()):
            fields = np.flatnonzero(found == index)
            rows_of = rows[named[fields]]
            reasons |= dict.fromkeys(rows_of[1:][np.diff(rows_of) == 0].tolist(), f"the field '{name}' is there twice")
            place = np.full(len(texts), -1)
            place[rows_of] = fields
            places.append(place)
        for place in places:
            place[[*reasons]] = -1
        return [values.take(pa.array(place, mask=place < 0)) for place in places], reasons


def _lines(data: Bytes, borders: Positions) -> tuple[Positions, Positions, Positions]:
    """Where lines begin that go on with no other, where their values end, and their first colons; -1 for none."""
    feeds = positions_of(data == LF)
    begins = np.union1d(borders[:-1], feeds + 1)
    begins = begins[begins < len(data)]
    first = data[begins]
    is_text = np.isin(begins, borders)
    goes_on = np.isin(first, _BLANKS) & ~is_text
    starts = begins[~goes_on & (first != LF) & (first != CR)]
    ends = np.minimum(np.append(starts[1:], len(data)), borders[np.searchsorted(borders, starts, "right")])
    line_ends = np.append(feeds, len(data))[np.searchsorted(feeds, starts)]
    colons = positions_of(data == _COLON)
    colons = np.append(colons, len(data))[np.searchsorted(colons, starts)]
    return starts, ends, np.where(colons < np.minimum(line_ends, ends), colons, -1)
