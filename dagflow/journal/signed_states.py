"""Which states of a journal are signed, and which are refused because they are not."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace

from dagflow.errors import JournalError, MissingError
from dagflow.journal.events import Event, Replan
from dagflow.journal.frames import decode
from dagflow.journal.log import LOG, SNAPSHOTS
from dagflow.journal.saved_state import CommittedState, ControlState, SavedSegment, SavedState
from dagflow.journal.signatures import KEY_FILE, Signer, pickles_of
from dagflow.journal.state import JournalState
from dagflow.journal.windows import WindowIntent, WindowPlan
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore


def signed_event(signer: Signer, event: Event) -> Event:
    """The event with a signature of the pickles in it.

    Raises:
        DagflowError: There are pickles, and the key cannot be read or created, or others can read it.
    """
    match event:
        case WindowPlan():
            return _signed_plan(signer, event)
        case Replan():
            return replace(event, plan=_signed_plan(signer, event.plan))
        case WindowIntent():
            return replace(event, state=signer.signed(event.state))
    return event


def _signed_plan(signer: Signer, plan: WindowPlan) -> WindowPlan:
    return replace(plan, control_state=signer.signed(plan.control_state))


def require_signatures(signer: Signer, store: ObjectStore, state: JournalState) -> None:
    """Refuse pickles that this user has not signed, before one is unpickled.

    Raises:
        JournalError: A pickle is not signed by this user.
        DagflowError: There are pickles, and the key cannot be read or created, or others can read it.
    """
    for each in _states_of(state):
        if place := signer.foreign_pickle(each):
            url = redacted(store.url)
            raise JournalError(
                f"a pickle ({place}) is not signed with your key, and unpickling runs code",
                url=_object_with(store, each) or url,
                hint=f"if no other user could write to the checkpoint: dagflow sign {shlex.quote(url)}; if you have "
                f"signed it on another machine, copy the key from there, and name it in {KEY_FILE}",
            )


def _states_of(state: JournalState) -> Iterator[ControlState | CommittedState]:
    yield state.control_state
    yield state.committed_state
    yield from state.before.values()
    yield from (plan.control_state for plan in (*state.planned.values(), *state.committing.values()))


def _object_with(store: ObjectStore, state: ControlState | CommittedState) -> str:
    """The URL of an object that contains a pickle of a state."""
    texts = [base64.b64encode(pickled).decode() for _, pickled in pickles_of(state)]
    for name in (*store.list(LOG), *store.list(SNAPSHOTS)):
        try:
            held = json.dumps(decode(store.read(name), name, store.roots))
        except (JournalError, MissingError):
            continue
        if any(text in held for text in texts):
            return redacted(f"{store.url}/{name}")
    return ""


def sign_all(signer: Signer, state: JournalState, with_checksum: Callable[[SavedSegment], SavedSegment]) -> int:
    """Sign every state of a journal, whether it was signed or not.

    Args:
        signer: Signs the states.
        state: The journal's state, which is changed.
        with_checksum: Returns a segment with the checksum of its current data.

    Returns:
        How many pickles were signed.
    """

    def checked(committed: CommittedState) -> CommittedState:
        partitions = {
            name: [None if saved is None else _checked(saved, with_checksum) for saved in states]
            for name, states in committed.partitions.items()
        }
        return signer.signed(replace(committed, partitions=partitions))

    state.control_state = signer.signed(state.control_state)
    state.committed_state = checked(state.committed_state)
    state.before = {window: checked(each) for window, each in state.before.items()}
    state.planned = {window: _signed_plan(signer, plan) for window, plan in state.planned.items()}
    state.committing = {window: _signed_plan(signer, plan) for window, plan in state.committing.items()}
    return sum(1 for each in _states_of(state) for _ in pickles_of(each))


def _checked(saved: SavedState, with_checksum: Callable[[SavedSegment], SavedSegment]) -> SavedState:
    if saved.segments is None:
        return saved
    return replace(saved, segments=[with_checksum(segment) for segment in saved.segments])
