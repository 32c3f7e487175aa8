"""Signs the pickles of a checkpoint, for a user who vouches for it."""

from __future__ import annotations

from dataclasses import replace

from dagflow.api.keyed_state import KeyedOperator, Segment
from dagflow.api.operator import Operator
from dagflow.engine.operator_state import is_stateful
from dagflow.engine.run_gate import RunGate
from dagflow.engine.segments import SegmentStore
from dagflow.engine.stop_request import StopRequest
from dagflow.journal.journal import Journal
from dagflow.journal.retention import JournalRetention
from dagflow.journal.saved_state import SavedSegment
from dagflow.storage.objects import ObjectStore


def pickles_state(operator: Operator) -> bool:
    """Whether an operator leaves pickled state in the checkpoint."""
    if isinstance(operator, KeyedOperator):
        return operator.value_type is None
    return is_stateful(operator) and operator.state_type is None


def sign(store: ObjectStore) -> int:
    """Sign all pickles of a checkpoint as this user's own; unpickles nothing.

    Args:
        store: The checkpoint.

    Returns:
        How many pickles there are.

    Raises:
        LiveRunError: A run is at work; nothing was changed.
        FencedError: Another driver has taken over.
        JournalError: The journal is damaged, or of an unknown version.
        DagflowError: There is no key, and none can be made.
        StorageError: The store failed.
    """
    RunGate(store, lambda text: None, StopRequest()).require_free()
    journal = Journal.take_over(store, None, JournalRetention())
    segments = SegmentStore(store, journal.epoch)

    def with_checksum(segment: SavedSegment) -> SavedSegment:
        data = segment.data or segments.read(segment.name)
        return replace(segment, pickle_sha256=Segment("", segment.size, data).with_checksum().pickle_sha256)

    try:
        return journal.sign(with_checksum)
    finally:
        journal.close()
