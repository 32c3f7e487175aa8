"""What the tasks of a stream have found out, as data in the state of the stream, until their window is committed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from dagflow.execution.messages import TaskResult
from dagflow.journal import frames
from dagflow.journal.windows import class_named, kind_name


def note_of(result: TaskResult) -> bytes:
    """A result as a frame of JSON: that of a task that writes no files and has no state."""
    events = [[kind_name(type(event)), event] for event in result.source_events]
    note = [replace(result, source_events=()), events]
    return frames.encode(msgspec.to_builtins(note, str_keys=True, enc_hook=np.ndarray.tolist))


def result_of(note: bytes, url: str, operator: str) -> TaskResult:
    """The result that is noted in an object, for the operator that takes its events.

    Raises:
        JournalError: The object is damaged, or was written by another version of dagflow.
    """
    data, encoded = frames.decode(note, url)
    result: TaskResult = _converted(data, TaskResult)
    events = (_converted(event, class_named(kind, operator)) for kind, event in encoded)
    return replace(result, source_events=tuple(events))


def _converted(data: Any, kind: type) -> Any:
    return msgspec.convert(data, kind, str_keys=True, dec_hook=lambda _, column: np.array(column, np.int64))
