"""Objects of the journal that are created unless they are there: any driver would write the same into them."""

from __future__ import annotations

from dagflow.errors import AlreadyExistsError, JournalError, MissingError
from dagflow.journal.frames import decode_all
from dagflow.journal.log import Log
from dagflow.storage.location import redacted
from dagflow.storage.objects import ObjectStore


def create_if_absent(store: ObjectStore, log: Log, name: str, data: bytes, frames: int = 1) -> None:
    """Create an object, unless it is there as a whole.

    Args:
        store: The checkpoint.
        log: This driver's right to act.
        name: The object.
        data: Its bytes.
        frames: How many frames these are.

    Raises:
        FencedError: Another driver has taken over, and what is there is torn.
        StorageError: The store failed.
    """
    try:
        store.create(name, data)
    except AlreadyExistsError:
        # Only finished windows and accepted records go in here, so any driver writes the same facts. But a file
        # system may have lost synced bytes of it in a power loss, and the records that say the same go after this.
        if is_whole(store, name, frames):
            return
        log.check_epoch()
        store.delete([name])
        store.create(name, data)


def is_whole(store: ObjectStore, name: str, frames: int) -> bool:
    """Whether an object can be read and holds so many frames.

    Raises:
        StorageError: The store failed.
    """
    try:
        return len(list(decode_all(store.read(name), redacted(f"{store.url}/{name}")))) == frames
    except (JournalError, MissingError):
        return False
