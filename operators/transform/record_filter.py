"""Keep or drop raw records by what they hold."""

from __future__ import annotations

from typing import Annotated

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import BaseModel, ConfigDict, Field, model_validator

from dagflow.api.operator import Operator
from dagflow.api.ports import InputPort, OutputPort
from dagflow.api.records import RecordBatch


class RecordMatch(BaseModel):
    """Which records are meant; exactly one of the four."""

    model_config = ConfigDict(extra="forbid")

    prefix: str | None = Field(None, description="the record begins with this text")
    suffix: str | None = Field(None, description="the record ends with this text")
    contains: str | None = Field(None, description="the record holds this text")
    regex: str | None = Field(None, description="an RE2 regular expression matches somewhere in the record")

    @model_validator(mode="after")
    def _check(self) -> RecordMatch:
        given = [name for name in type(self).model_fields if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of prefix, suffix, contains, regex; got {', '.join(given) or 'none'}")
        if self.regex is not None:
            try:
                self.mask(RecordBatch.from_records([b""]))
            except pa.ArrowInvalid as error:
                raise ValueError(f"regex {self.regex!r} is not a valid RE2 expression: {error}") from None
        return self

    def mask(self, batch: RecordBatch) -> pa.BooleanArray:
        """For each record of a raw batch, whether it is meant.

        Raises:
            KeyError: The batch is not raw.
        """
        if self.prefix is not None:
            pattern = self.prefix.encode()
            return pc.starts_with(_comparable(batch, pattern), pattern=pattern)
        if self.suffix is not None:
            return pc.ends_with(batch.record, pattern=self.suffix.encode())
        if self.contains is not None:
            pattern = self.contains.encode()
            return pc.match_substring(_comparable(batch, pattern), pattern=pattern)
        return pc.match_substring_regex(batch.record, pattern=self.regex)


def _comparable(batch: RecordBatch, pattern: bytes) -> pa.Array:
    """The records in the cheaper form that a search for pattern cannot tell from the records themselves."""
    delimiter = batch.delimiters.uniform
    # A match that reaches into a delimiter, or lies in it, has a byte in common with it.
    if delimiter and set(delimiter).isdisjoint(pattern):
        return batch.framed()
    return batch.record


class RecordFilter(Operator):
    """Keeps or drops the records that match.

    Guarantee: records keep their order, origin and delimiters.
    """

    keep: Annotated[RecordMatch | None, Field(description="pass these records on, and no others")] = None
    drop: Annotated[RecordMatch | None, Field(description="pass on all records but these")] = None

    input = InputPort()
    output = OutputPort()

    def check_properties(self) -> None:
        """Exactly one of keep and drop is given."""
        if (self.keep is None) == (self.drop is None):
            raise ValueError("give exactly one of keep and drop, such as drop: {prefix: '#'}")

    @input.batch
    def filter(self, batch: RecordBatch) -> None:
        """Pass on what is to be kept."""
        if self.drop is not None:
            self.output.emit(batch.filter(pc.invert(self.drop.mask(batch))))
        elif self.keep is not None:
            self.output.emit(batch.filter(self.keep.mask(batch)))
