"""The error for a failure in an operator's code, with the operator and its current input."""

from __future__ import annotations

import contextlib
import inspect
import os
import sysconfig
import threading
import traceback
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import length_hint
from pathlib import Path
from typing import Any

from dagflow.api.operator import ASYNCHRONOUS
from dagflow.api.properties import PropertyTextError
from dagflow.api.records import RecordBatch
from dagflow.api.sources import is_file_part
from dagflow.errors import (
    AppError,
    DagflowError,
    JournalError,
    OperatorError,
    RecordError,
    RunStoppedError,
    StorageError,
    cut_text,
    text_of,
    trace_of,
)
from dagflow.frozen import frozen

LOCATED_ERRORS = (OperatorError, RecordError, StorageError, JournalError, AppError, RunStoppedError)
"""Errors that name their own place, or whose type decides what happens next; all others get a place."""

FAILURES = (BaseException,)
"""Errors that count as a failure of an operator, unless they are raised from outside. After sys.exit(), or an author's
exception that is no Exception, Spark would only say that the task is gone."""


_OTHERS_CODE = tuple(
    {
        *(str(Path(__file__).parents[2] / name) + os.sep for name in ("dagflow", "operators")),
        *(sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    }
)
"""Directories with code that is not the author's."""

_PACKAGES = tuple(f"{os.sep}{name}{os.sep}" for name in ("site-packages", "dist-packages"))
"""Directories of installed packages, which may also be those of another environment or of the user."""

_COMPILED = (".pyx", ".pxi", ".pxd")
"""Suffixes of Cython's file names, which are relative to the directory in which they were compiled."""

_MAX_RECORD = 200
"""Characters of a record in an error's message."""


class BrokenContractError(Exception):
    """A method of an operator broke its contract; the message continues a sentence that begins with its name.

    Attributes:
        source: The position in a batch of the record for which it did so; -1 where it is not known.
    """

    def __init__(self, message: str, source: int = -1, *, hint: str = "") -> None:
        super().__init__(message)
        self.source = source
        self.hint = hint


@frozen
class FailedInput:
    """The input that an operator was processing when it failed.

    Attributes:
        blocks: Blocks, or other tuples, that the input comes from; empty where they are not known.
        offset: Byte offset of the record in its file, -1 where it is not known.
        record: The record as Python shows it; "" where the operator had more than one, or none.
    """

    blocks: Sequence[Any] = ()
    offset: int = -1
    record: str = ""

    @classmethod
    def of(cls, payload: Any, position: int = -1) -> FailedInput:
        """The input of a failed call: the record at a position of a batch, -1 for the batch as a whole, or a tuple."""
        if not isinstance(payload, RecordBatch):
            return cls((payload,))
        if position < 0:
            return cls(payload.blocks)  # not as a tuple: a batch of small files makes each block on access
        return cls((payload.block_of(position),), int(payload.offsets()[position]))

    def __str__(self) -> str:
        """The end of a sentence; "" where the input is not a range of a file."""
        text = f" on the record at offset {self.offset}" if self.offset >= 0 else ""
        if not self.blocks or not is_file_part(self.blocks[0]):
            return text
        first, last = [f"{block.url} [{block.start}, {block.end})" for block in (self.blocks[0], self.blocks[-1])]
        if len(self.blocks) == 1:
            return f"{text} of {first}"
        return f"{text} in a batch of {len(self.blocks)} blocks, from {first} to {last}"


NO_INPUT = FailedInput()


def operator_error(
    error: BaseException, method: Callable[..., Any], operator: str, window_id: int, partition: int, failed: FailedInput
) -> OperatorError:
    """The error for a failed method of an operator; picklable, with the traceback as text."""
    message = error.message if isinstance(error, DagflowError) else text_of(error)
    hint = error.hint if isinstance(error, DagflowError | BrokenContractError) else ""
    name = f"{getattr(method, '__name__', 'it')}()"
    if isinstance(error, BrokenContractError):
        message = f"{name} {message}"
    elif not isinstance(error, DagflowError | PropertyTextError):  # these are written for the author of the app
        message = f"{name} raised {type(error).__name__}({message})"
    return OperatorError(
        f"{message}{failed}",
        operator=operator,
        window_id=window_id,
        partition=partition,
        offset=failed.offset,
        trace=trace_of(error),
        hint=hint,
        line=line_of(error),
        record=failed.record,
    )


def is_complete(error: BaseException, partition: int, owns_process: bool) -> bool:
    """Whether the error of an operator's call is raised as it is, without the operator's place."""
    if isinstance(error, GeneratorExit):
        # An error that ends the frame itself, in a yield, is from outside; the operator's own comes from a frame below.
        return error.__traceback__ is None or error.__traceback__.tb_next is None
    if isinstance(error, KeyboardInterrupt):
        return not owns_process and threading.current_thread() is threading.main_thread()
    # In the driver a service may have raised: that Spark has not started is not the operator's failure.
    return isinstance(error, LOCATED_ERRORS) or (isinstance(error, DagflowError) and partition < 0)


@contextlib.contextmanager
def located(operator: str, method: Callable[..., Any]) -> Iterator[None]:
    """Add the operator to errors of its method in the driver; errors of dagflow are complete."""
    try:
        yield
    except (DagflowError, GeneratorExit, KeyboardInterrupt):
        raise
    except FAILURES as error:
        raise operator_error(error, method, operator, -1, -1, NO_INPUT) from error


@contextlib.contextmanager
def restored(operator: str) -> Iterator[None]:
    """Add the operator to errors of restoring its state: keyed state does not know the operator's name."""
    try:
        yield
    except JournalError as error:
        raise JournalError(f"operator '{operator}': {error.message}", url=error.url, hint=error.hint) from error


def line_of(error: BaseException) -> str:
    """The line of the author's code that raised, as "file:line: code"; "" where none of the author's code ran.

    If a library raised, it is the line of the author's code that called the library.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if frame.line and not _is_others(frame.filename):
            return f"{_short_path(frame.filename)}:{frame.lineno}: {frame.line}"
    return ""


def _is_others(file: str) -> bool:
    is_installed = file.startswith((*_OTHERS_CODE, "<")) or any(folder in file for folder in _PACKAGES)
    return is_installed or file.endswith(_COMPILED)


def _short_path(path: str) -> str:
    with contextlib.suppress(OSError, ValueError):
        return str(Path(path).relative_to(Path.cwd()))
    return path


def shown_record(record: Any) -> str:
    """A record as Python shows it, cut where it is long; "" where its class cannot be shown."""
    try:
        return cut_text(repr(record), _MAX_RECORD)
    except Exception:  # the class may be an author's
        return ""


def refuse_asynchronous(result: object) -> None:
    """Raise if a method was asynchronous; a decorator may have hidden this from the check of its class."""
    if inspect.isawaitable(result) or isinstance(result, AsyncIterator):
        if inspect.iscoroutine(result):
            result.close()  # otherwise Python warns elsewhere that it was never awaited
        raise BrokenContractError(f"is {ASYNCHRONOUS}")


@dataclass(slots=True, eq=False)
class ActiveCall:
    """A call of an operator that has not ended; other threads may read it.

    Attributes:
        piece: An iterator over records of the payload that are handled one by one, and the position after the last of
            them; None where the method takes all at once.
    """

    operator: str
    method: Callable[..., Any]
    payload: Any = None
    piece: tuple[Iterator[Any], int] | None = None

    @property
    def taken(self) -> int:
        """How many records of the payload the method has taken; 0 where it takes all at once."""
        if self.piece is None:
            return 0
        iterator, end = self.piece
        return end - length_hint(iterator)

    def __str__(self) -> str:
        failed = FailedInput.of(self.payload, self.taken - 1) if self.payload is not None else NO_INPUT
        return f"{getattr(self.method, '__name__', 'it')}(){failed}"
