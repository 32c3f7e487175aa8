"""Pending output on remote stores: which way each of them takes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from dagflow.storage import pending_hidden, pending_s3
from dagflow.storage.pending import PendingFile, PendingWriter
from dagflow.storage.remote import filesystem_of, request_threads, s3_location, takes_several, translated_remote


def open_pending(final_url: str, directory_tag: str, checksum: bool) -> PendingWriter:
    """See pending.open_pending."""
    place = s3_location(final_url)
    if place is not None:
        return pending_s3.S3PendingWriter(final_url, place, directory_tag, checksum)
    return pending_hidden.HiddenWriter(final_url, directory_tag, checksum)


def for_all(act: Callable[[PendingFile], None], files: Sequence[PendingFile]) -> None:
    """Do something with each file, several at a time where their store's client takes that."""
    if not all(takes_several(filesystem_of(file.final_url)[0]) for file in files):
        for file in files:
            act(file)
        return
    for done in [request_threads().submit(act, file) for file in files]:
        done.result()


def publish(pending: PendingFile) -> None:
    """See pending.publish."""
    place = s3_location(pending.final_url)
    if place is not None:
        pending_s3.publish(pending, place)
    else:
        pending_hidden.publish(pending)


def replace(pending: PendingFile) -> None:
    """See pending.replace."""
    place = s3_location(pending.final_url)
    if place is not None:
        pending_s3.replace(pending, place)
    else:
        pending_hidden.replace(pending)


def is_whole(pending: PendingFile) -> bool:
    """See pending.is_whole."""
    place = s3_location(pending.final_url)
    return pending_hidden.is_whole(pending) if place is None else pending_s3.is_whole(pending, place)


def discard(pending: PendingFile) -> None:
    """See pending.discard."""
    place = s3_location(pending.final_url)
    if place is not None:
        pending_s3.discard(pending, place)
    else:
        pending_hidden.discard(pending)


def discard_rivals(pending: PendingFile) -> None:
    """See pending.discard_rivals."""
    place = s3_location(pending.final_url)
    if place is not None:
        pending_s3.discard_rivals(pending, place)


def remove(url: str) -> None:
    """See pending.remove."""
    filesystem, path = filesystem_of(url)
    with translated_remote(url, "remove"):
        filesystem.rm_file(path)


def sweep(
    root_url: str, owner: str, before_epoch: int, require_right: Callable[[], None], keep: Collection[str]
) -> int:
    """See pending.sweep."""
    place = s3_location(root_url)
    if place is not None:
        return pending_s3.sweep(place, owner, keep, require_right)
    return pending_hidden.sweep(root_url, owner, before_epoch, keep)
