"""The ways in which text becomes columns: for the operator Parse, and for formats whose records are text."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from pydantic import BaseModel, ConfigDict, Field

from dagflow.api.columns.column_typing import StreamColumns
from dagflow.api.properties import Columns, HasProperties
from dagflow.api.records import RecordBatch
from dagflow.api.regular_expressions import Pattern, closed
from dagflow.late import compute as pc
from dagflow.suggestions import did_you_mean
from operators.reader.columns.key_values import KeyValue
from operators.reader.columns.named_fields import NamedFields
from operators.reader.columns.types import ColumnTypes, refuse_optional
from operators.reader.columns.typing import in_records, typed, valid_text, without_refused, without_skipped
from operators.reader.formats.base import ByteAccounting, FormatTraits, Parsed
from operators.reader.formats.json_lines import JsonLines


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

    def with_columns(self, traits: FormatTraits) -> FormatTraits:
        """The traits of a format whose records become columns."""
        return replace(traits, has_columns=True, columns=StreamColumns(self.parsed_schema()))

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
