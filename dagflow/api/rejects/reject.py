"""A refused record, as an operator emits it at the port `errors`."""

from __future__ import annotations

import base64
import binascii
import json
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
        # It may quote a name or a value, which may be as long as a file, and is there once for each record.
        object.__setattr__(self, "reason", cut_text(self.reason, MAX_REASON))

    def error(self, hint: str) -> RecordError:
        """The error if such a record ends the run.

        Args:
            hint: What the user can do.
        """
        return RecordError(self.reason, url=self.url, offset=self.offset, length=self.length, hint=hint)

    def to_bytes(self) -> bytes:
        """The reject as one JSON object in UTF-8, with raw in base64."""
        # Put together by hand, which is five times as fast: a run may refuse millions.
        beginning = f'"url": {quoted(self.url)}, "offset": {self.offset}, "length": {self.length}'
        text = f'{{{beginning}, "reason": {quoted(self.reason)}, "raw": "'
        return b'%b%b"}' % (text.encode(), binascii.b2a_base64(self.raw, newline=False))

    @classmethod
    def from_bytes(cls, data: bytes) -> Reject:
        """The reject from the bytes of to_bytes().

        Raises:
            ValueError: The bytes are something else.
        """
        try:
            facts = json.loads(data)
            raw = base64.b64decode(facts["raw"])
            return cls(facts["url"], int(facts["offset"]), int(facts["length"]), facts["reason"], raw)
        except (TypeError, KeyError) as error:
            raise ValueError(f"no reject: {error}") from error
