"""A refused record, as an operator emits it at the port `errors`."""

from __future__ import annotations

import base64
import json
from binascii import b2a_base64
from collections.abc import Sequence
from dataclasses import dataclass
from json.encoder import encode_basestring_ascii as quoted

from dagflow.errors import RecordError, cut_text

MAX_REASON = 1024
"""Characters of the reason of a reject."""

REJECTS = "errors"
"""The port at which an operator emits what it refuses."""


@dataclass(frozen=True, slots=True)
class Reject:
    """A refused record, with its position and the reason.

    Attributes:
        url: The file that it comes from; "" for none.
        offset: Its first byte in the content of the file.
        length: Its size there in bytes; negative where it is not known.
        reason: Why it was refused.
        raw: Its bytes, or as many of its first bytes as were kept; for a record with columns, a JSON object.
    """

    url: str
    offset: int
    length: int
    reason: str
    raw: bytes

    def __post_init__(self) -> None:
        object.__setattr__(self, "reason", cut_text(self.reason, MAX_REASON))

    def error(self, hint: str) -> RecordError:
        """The error if such a record ends the run."""
        return RecordError(self.reason, url=self.url, offset=self.offset, length=self.length, hint=hint)

    def to_bytes(self) -> bytes:
        """The reject as one JSON object in UTF-8, with raw in base64."""
        return encoded(self.url, [self.offset], [self.length], [self.reason], [self.raw])[0]

    @classmethod
    def from_bytes(cls, data: bytes) -> Reject:
        """The reject from the bytes of to_bytes()."""
        try:
            facts = json.loads(data)
            raw = base64.b64decode(facts["raw"])
            return cls(facts["url"], int(facts["offset"]), int(facts["length"]), facts["reason"], raw)
        except (TypeError, KeyError) as error:
            raise ValueError(f"no reject: {error}") from error


def encoded(
    url: str, offsets: Sequence[int], lengths: Sequence[int], reasons: Sequence[str], raws: Sequence[bytes]
) -> list[bytes]:
    """Refused records of one file as to_bytes() gives each."""
    # Put together by hand, which is ten times as fast as a dict for each: a run may refuse millions.
    beginning = f'{{"url": {quoted(url)}, "offset": '.encode()
    return [
        b'%b%d, "length": %d, "reason": %b, "raw": "%b"}'
        % (beginning, offset, length, quoted(reason).encode(), b2a_base64(raw, newline=False))
        for offset, length, reason, raw in zip(offsets, lengths, reasons, raws, strict=True)
    ]


def cut_reasons(reasons: Sequence[str]) -> Sequence[str]:
    """Reasons of a length that can be kept for each record: they may quote a value that is as long as a file."""
    if max(map(len, reasons), default=0) <= MAX_REASON:
        return reasons
    return [cut_text(reason, MAX_REASON) for reason in reasons]
