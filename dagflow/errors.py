"""The exceptions of dagflow, and the exit code of each.

Every exception keeps its data in attributes and survives pickling, because one raised in an executor
is shown by the driver.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from typing import Any, ClassVar

from dagflow.frozen import frozen

MOST_LEVELS = 100
"""How often values of JSON, YAML, and parts of expressions may be within each other. Recursive code takes several calls
a level, and Python ends it at a thousand calls, wherever it was called from."""

MAX_TEXT = 4096
"""Characters of an error's message: it travels through Java, journals and terminals, and may quote a whole record."""

MAX_TRACE = 4 * MAX_TEXT
"""Characters of a traceback, which repeats the message."""

_MAX_QUOTED = MAX_TEXT * 3 // 4
"""Characters of an exception's text within a message. The message adds the place, and is not cut again."""

_TAIL = 4
"""A cut text keeps one part in this many from its end."""


START_OVER = "start over with --fresh, which removes the published output, and makes it again from the existing files"
"""Advice where a checkpoint cannot be continued; --fresh itself refuses where those files are gone."""

ANOTHER_TABLE = "let the app name another table, and start over with --fresh; this one stays as it is"
"""Advice where what windows have added to a table cannot be replaced."""

ANOTHER_CHECKPOINT = "start over with another checkpoint and other outputs; the published output stays"
"""Advice where a journal cannot be read: what it has published is not known, and --fresh cannot remove it."""

FROM_A_COPY = f"restore the checkpoint from a copy, or {ANOTHER_CHECKPOINT}"
"""Advice where a journal is damaged."""

PUT_BACK = f"put the source files back, and {ANOTHER_CHECKPOINT}"
"""Advice where --fresh is refused, because an operator has removed the source files."""


def cut_text(text: str, limit: int = MAX_TEXT) -> str:
    """A text that is short enough to be passed on: a long one becomes its head, its tail, and how much is left out."""
    if len(text) <= limit:
        return text
    tail = limit // _TAIL
    left_out = len(text) - limit
    size = f"{left_out / 1e6:,.0f} MB" if left_out >= 1e6 else f"{max(left_out / 1e3, 1):.0f} kB"
    return f"{text[: limit - tail]} … {size} left out … {text[-tail:]}"


_PART = "#"
"""Separates the name of a part from that of its operator; authors' names do not contain it."""


def part_name(operator: str, part: str) -> str:
    """The name of an operator that dagflow makes for one of an app, or for a part of it; no user gets to see it."""
    return f"{operator}{_PART}{part}"


_QUOTED_PART = re.compile(rf"(?<=operator ')([^'{_PART}\n]+){_PART}[^'\n]*(?=')")


def own_name(operator: str) -> str:
    """The operator of the app that an operator is, or is a part of: the name that a user knows."""
    return operator.partition(_PART)[0]


def text_of(error: BaseException) -> str:
    """The text of an exception that may be of any class, cut where it is long."""
    try:
        return cut_text(str(error), _MAX_QUOTED)
    except Exception as failure:  # the class is an author's
        return f"its text cannot be shown: __str__ raised {type(failure).__name__}"


def trace_of(error: BaseException) -> str:
    """The traceback of an exception that may be of any class, cut where it is long."""
    return cut_text("".join(traceback.format_exception(error)), MAX_TRACE)


class DagflowError(Exception):
    """Base of all errors that dagflow raises.

    A long message or hint is cut, and an operator that dagflow has made has the name of that of the app.

    Args:
        message: What is wrong and where, as a lower-case clause; names as the user typed them.
        hint: Advice, or "".
    """

    exit_code: ClassVar[int] = 1
    max_text: ClassVar[int] = MAX_TEXT

    def __init__(self, message: str, *, hint: str = "") -> None:
        message, hint = (_QUOTED_PART.sub(r"\1", cut_text(text, self.max_text)) for text in (message, hint))
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        text = self._located()
        return f"{text}\n    {self.hint}" if self.hint else text

    def advise(self, *, hint: str) -> None:
        """Add advice."""
        self.hint = cut_text(f"{self.hint}\n    {hint}" if self.hint else hint, self.max_text)

    def _located(self) -> str:
        """The message behind the place that it is about."""
        return self.message

    def __reduce__(self) -> tuple[Any, ...]:
        # The default rebuilds from args alone, and loses every keyword field on the way from an executor.
        return _restore, (type(self), self.args, self.__dict__)


def _restore(cls: type[DagflowError], args: tuple[Any, ...], state: dict[str, Any]) -> DagflowError:
    error = cls.__new__(cls)
    error.args = args
    error.__dict__.update(state)
    return error


@frozen
class Problem:
    """One mistake in an app, at the place where it was written.

    Attributes:
        file: The app file as the user named it, or "" for the command line.
        line: 1-based line, 0 where there is none.
        column: 1-based column, 0 where it is not known.
        message: The value found, the expected one, and the nearest valid name if one is close.
    """

    file: str
    line: int
    column: int
    message: str

    def __str__(self) -> str:
        # Python code that builds an app is known by its lines only.
        column = f":{self.column}" if self.column else ""
        place = f"{self.file}:{self.line}{column}: " if self.line else f"{self.file}: " if self.file else ""
        return place + cut_text(self.message)


class AppError(DagflowError, ValueError):
    """The app or the command line is wrong; nothing was run.

    Args:
        problems: Every mistake that was found, in file order; at least one.
    """

    exit_code: ClassVar[int] = 2
    max_text: ClassVar[int] = 1 << 20  # every problem counts, and each is cut by itself

    def __init__(self, problems: Sequence[Problem], *, hint: str = "") -> None:
        super().__init__("\n".join(map(str, problems)), hint=hint)
        self.problems = tuple(problems)


class SpecError(AppError):
    """The YAML is not a well-formed app: syntax, unknown keys, wrong types, bad properties."""


class PlanError(AppError):
    """The app is well-formed, and its operators cannot be wired or placed as written."""


class OperatorError(DagflowError):
    """Code of an operator raised, or broke its contract.

    Args:
        message: The failure, with the type and text of the exception.
        operator: The operator's name in the app.
        window_id: The window it worked on, or -1 outside of any.
        partition: The partition, or -1 in the driver.
        offset: Byte offset of the record at hand in its file, or -1.
        trace: The traceback as text, for the log.
        line: The line of the author's code that raised, as "file:line: code", or "".
        record: The record at hand as Python shows it, or "".
    """

    def __init__(
        self,
        message: str,
        *,
        operator: str,
        window_id: int = -1,
        partition: int = -1,
        offset: int = -1,
        trace: str = "",
        hint: str = "",
        line: str = "",
        record: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.operator = operator
        self.window_id = window_id
        self.partition = partition
        self.offset = offset
        self.trace = cut_text(trace, MAX_TRACE)
        self.line = line
        self.record = record

    def _located(self) -> str:
        place = [f"window {self.window_id}"] if self.window_id >= 0 else []
        place.append(
            f"operator '{own_name(self.operator)}'" + (f" partition {self.partition}" if self.partition >= 0 else "")
        )
        text = f"{', '.join(place)}: {self.message}"
        if self.line:
            text += f"\n    at {self.line}"
        if self.record:
            text += f"\n    record: {self.record}"
        return text


class RecordError(DagflowError, ValueError):
    """A record, or a range of bytes that should be one, does not fit its format.

    Args:
        message: The reason.
        url: The file.
        offset: First byte of the range.
        length: Bytes in the range; -1 where an operator refuses a record after changing it.
    """

    def __init__(self, message: str, *, url: str, offset: int, length: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.url = url
        self.offset = offset
        self.length = length

    def _located(self) -> str:
        if not self.url:
            return self.message  # an operator has made the record
        size = f" ({self.length} bytes)" if self.length >= 0 else ""
        return f"{self.url} offset {self.offset}{size}: {self.message}"


class LocationError(DagflowError):
    """An error about a location.

    Args:
        message: The attempted operation and the answer of the store.
        url: The location, without credentials.
    """

    def __init__(self, message: str, *, url: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.url = url

    def _located(self) -> str:
        return f"{self.url}: {self.message}"


class StorageError(LocationError, OSError):
    """A store refused or failed."""


class AlreadyExistsError(StorageError):
    """Exclusive creation found the name taken."""


class MissingError(StorageError):
    """The location holds nothing."""


class MissingJournalError(MissingError):
    """No run has begun a journal at the location."""


class SourceChangedError(StorageError):
    """A file is no longer the version that was planned.

    Args:
        is_rewritten: Whether it is the same file, with other bytes.
        has_other_bytes: Whether its bytes show that, and its size and time may not.
    """

    def __init__(
        self, message: str, *, url: str, hint: str = "", is_rewritten: bool = False, has_other_bytes: bool = False
    ) -> None:
        super().__init__(message, url=url, hint=hint)
        self.is_rewritten = is_rewritten or has_other_bytes
        self.has_other_bytes = has_other_bytes


class ReplacedFilesGoneError(StorageError):
    """A target does not show files any more that a replay would replace."""


class LostOutputError(StorageError):
    """A file that a committed window is to publish is gone, or is not what was written."""


class TransientStorageError(StorageError):
    """The store failed, and may succeed when asked again."""


class CredentialsError(StorageError):
    """The store did not accept the credentials, or there are none; the requested file may be all right."""


class JournalError(LocationError):
    """The journal at a checkpoint's location cannot be read, continued or written."""

    def __init__(self, message: str, *, url: str = "journal", hint: str = "") -> None:
        super().__init__(message, url=url, hint=hint)


class FencedError(JournalError):
    """Another driver has taken over this checkpoint."""


class LiveRunError(JournalError):
    """Another run is at work on this checkpoint, and nothing was done."""


class ProcessEndedError(DagflowError):
    """A process that the run needs was ended, and nothing in the app did it: the same run may succeed another time."""


class RunStoppedError(DagflowError):
    """The user or the system asked the run to stop; its journal is resumable."""

    exit_code: ClassVar[int] = 130
