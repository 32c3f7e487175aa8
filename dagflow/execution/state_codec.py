"""The state of operators as the journal keeps it: data of the type that an operator declares."""

from __future__ import annotations

from typing import Any

import msgspec

from dagflow.api.capabilities import PreScan
from dagflow.api.control import InputOperator
from dagflow.api.keyed_state import KeyedSnapshot, Segment
from dagflow.api.operator import Operator
from dagflow.api.saved_values import difference, shown_type
from dagflow.errors import START_OVER, JournalError, OperatorError
from dagflow.journal.frames import as_read
from dagflow.journal.saved_state import SavedSegment, SavedState


class StateCodec:
    """Encodes and decodes one kind of state of one operator."""

    def __init__(self, operator: str, method: str, state_type: Any, version: int) -> None:
        self._operator = operator
        self._method = method
        self._type = state_type
        self._version = version

    @classmethod
    def of_snapshots(cls, name: str, operator: Operator, method: str = "snapshot") -> StateCodec:
        return cls(name, method, operator.state_type, operator.state_version)

    @classmethod
    def of_prescans(cls, name: str, prescan: PreScan) -> StateCodec:
        return cls(name, "prescan().snapshot", prescan.state_type, prescan.state_version)

    @classmethod
    def of_events(cls, name: str, operator: InputOperator) -> StateCodec:
        return cls(name, "event_state", operator.event_state_type, operator.state_version)

    def encode(self, state: Any, window_id: int = -1, partition: int = -1) -> SavedState:
        """The state in the journal's form."""
        if isinstance(state, KeyedSnapshot):
            segments = [SavedSegment(segment.name, segment.size, segment.data) for segment in state.segments]
            return SavedState(self._version, segments=segments)
        if isinstance(self._type, type) and not isinstance(state, self._type):
            what = f"returned {type(state).__name__}, and the operator declares {self._type.__name__}"
            raise self._refused(what, window_id, partition)
        try:
            data = as_read(msgspec.to_builtins(state, str_keys=True))
            # A state that the next window could not restore unchanged must not be committed.
            restored: Any = msgspec.convert(data, self._type, str_keys=True)
        except msgspec.ValidationError as error:
            what = f"returned {shown_type(self._type)} with other values than its fields say: {error}"
            raise self._refused(what, window_id, partition) from error
        except TypeError as error:
            what = f"returned {shown_type(self._type)} that cannot be written as JSON: {error}"
            hint = "its fields may be text, numbers, bytes, None, lists, mappings, and dataclasses of these"
            raise self._refused(what, window_id, partition, hint) from error
        if (change := difference(state, restored)) is not None:
            what = f"returned {type(state).__name__}, which is not kept as it is: {change}"
            raise self._refused(what, window_id, partition, hint="declare for each field the type of its values")
        return SavedState(self._version, data=data)

    def _refused(self, what: str, window_id: int, partition: int, hint: str = "") -> OperatorError:
        return OperatorError(
            f"{self._method}() {what}", operator=self._operator, window_id=window_id, partition=partition, hint=hint
        )

    def decode(self, saved: SavedState) -> Any:
        if saved.version != self._version:
            raise self._unknown(f"version {saved.version}, and this program knows version {self._version}")
        if saved.segments is not None:
            return KeyedSnapshot(tuple(Segment(segment.name, segment.size, segment.data) for segment in saved.segments))
        try:
            return msgspec.convert(saved.data, self._type, str_keys=True)
        except msgspec.ValidationError as error:
            raise self._unknown(f"another form than {shown_type(self._type)}: {error}") from error

    def _unknown(self, what: str) -> JournalError:
        return JournalError(
            f"operator '{self._operator}' has left state of {what}",
            hint=f"run the version that wrote it, or {START_OVER}",
        )
