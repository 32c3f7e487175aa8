"""What happens when a file cannot be read: the run fails, or the file is left out, which is journaled."""

from __future__ import annotations

import logging
from typing import Literal

from dagflow.api.context import UNKNOWN_SUM, Cause, MovedRange, OperatorContext, Skipped, VersionKey
from dagflow.api.sources import accounting_key
from dagflow.errors import CredentialsError, DagflowError, MissingError, RecordError, SourceChangedError
from dagflow.metrics.names import LEFT_OUT_BYTES, RESUMED_BYTES, SKIPPED, SKIPPED_BYTES, VANISHED
from dagflow.storage.location import redacted
from operators.files.metadata import BlockMetadata
from operators.files.source_events import FileFingerprints
from operators.reader.byte_source import UNKNOWN_SIZE
from operators.reader.compression.recognition import CompressionSetting, expected_compression
from operators.reader.compression.splitting import owned_range
from operators.reader.fingerprints import gone_block_fingerprint, skipped_block_fingerprint

logger = logging.getLogger(__name__)

_HINT = (
    "to continue without this version, set on_vanished: skip on the reader: it is then listed as left out, and the "
    "present content of the file is read as a new version"
)

OnError = Literal["fail", "skip"]
OnVanished = Literal["skip", "fail"]

GoneError = SourceChangedError | MissingError
"""The errors of a planned version that is gone."""


class ErrorPolicy:
    """The app's policy for files that cannot be read.

    A file that is damaged or cannot be read (on_error), or whose version is gone when it is to be read (on_vanished),
    ends the run, or its block is left out, which is journaled, counted and logged.
    """

    def __init__(
        self,
        on_error: OnError,
        on_vanished: OnVanished,
        context: OperatorContext,
        compression: CompressionSetting = "auto",
    ) -> None:
        self._compression = compression
        self.skips = on_error == "skip"
        self._skips_gone = on_vanished == "skip"
        self._context = context

    def leave_out(self, block: BlockMetadata, error: DagflowError) -> None:
        """Leave out a block that cannot be read."""
        if isinstance(error, (SourceChangedError, MissingError)):
            self._leave_out_gone(block, error)
            return
        # Wrong credentials would fail for one file after the other, and all of the input would be left out.
        if not self.skips or isinstance(error, CredentialsError):
            raise error
        self._context.counters[SKIPPED] += 1
        self._leave_out(block, error, "unreadable")
        self._report(skipped_block_fingerprint(block, self._context.storage))

    def _leave_out_gone(self, block: BlockMetadata, error: GoneError) -> None:
        # A replay leaves out what its window has left out, whatever the app's setting is today.
        if not self._skips_gone and version_key(block) not in self._context.gone:
            if not error.hint:
                error.hint = _HINT
            raise error
        is_later = block.start > 0 and not block.continuation.resumes
        is_in_content = is_later and expected_compression(block, self._compression) is not None
        if is_in_content and not (_has_content(block) or self._was_gone(block)):
            return
        self._leave_out(block, error, "deleted" if isinstance(error, MissingError) else "superseded")
        self._context.counters[VANISHED] += 1
        is_rewritten = isinstance(error, SourceChangedError) and error.is_rewritten
        start = 0 if is_in_content else block.start
        self._report(gone_block_fingerprint(block, start, self._context.storage, is_rewritten=is_rewritten))

    def _was_gone(self, block: BlockMetadata) -> bool:
        return block.continuation.is_gone or version_key(block) in self._context.gone

    def leave_out_after_part(self, block: BlockMetadata, error: GoneError) -> None:
        """Leave out a block after some of its records were emitted: the window runs again, without the version."""
        self.leave_out(block, error)
        self._context.read_in_part.add(version_key(block))

    def left_out_before(self, block: BlockMetadata) -> bool:
        """Leave out a block if an earlier attempt at the window found its version gone; returns whether it did."""
        if block.continuation.is_gone:
            text = "the version was already gone when the bytes before these were to be read"
            self._leave_out_gone(block, SourceChangedError(text, url=redacted(block.url), has_other_bytes=True))
            return True
        known = self._context.gone.get(version_key(block)) if self._context.gone else None
        if known is None:
            return False
        text = known.reason.partition(": ")[2]
        error: GoneError = SourceChangedError(text, url=redacted(known.url), has_other_bytes=known.has_other_bytes)
        if known.cause == "deleted":
            error = MissingError(text, url=redacted(known.url))
        self._leave_out_gone(block, error)
        return True

    def _leave_out(self, block: BlockMetadata, error: DagflowError, cause: Cause) -> None:
        context, version = self._context, block.version
        lost_start, lost_end = owned_range(block, expected_compression(block, self._compression))
        if block.closes:
            lost_start = block.continuation.tail_start
            context.counters[RESUMED_BYTES] += lost_end - lost_start
        skipped = Skipped(
            url=block.url,
            start=block.start,
            end=block.end,
            reason=_reason(error),
            cause=cause,
            size_bytes=version.size_bytes,
            mtime_ns=version.mtime_ns,
            etag=version.etag,
            file_id=version.file_id,
            has_other_bytes=isinstance(error, SourceChangedError) and error.has_other_bytes,
            lost_start=lost_start,
            lost_end=lost_end,
        )
        context.counters[SKIPPED_BYTES] += skipped.lost_bytes
        context.counters[LEFT_OUT_BYTES] += skipped.lost_bytes
        if block.start or not block.is_last:
            # Records of the blocks around it may begin or end in the block.
            context.accounting[accounting_key(block)] = UNKNOWN_SUM
        context.skipped.append(skipped)
        if block.continuation.moved_from:
            # Listed once, under the current name of the file.
            end = UNKNOWN_SIZE if block.continuation.content_start else block.end
            context.moved.append(
                MovedRange(block.continuation.moved_from, block.continuation.content_start or block.start, end)
            )
        logger.warning("block left out url=%s start=%d: %s", redacted(skipped.url), lost_start, skipped.reason)

    def _report(self, event: FileFingerprints | None) -> None:
        if event is not None and self._context.source_events is not None:
            self._context.source_events.append(event)


def _has_content(block: BlockMetadata) -> bool:
    """Whether records may begin in a later block of a compressed file; in a file that is not cut, the first has all."""
    part = block.continuation.decompressed
    return part is not None and part.start < part.end


def version_key(block: BlockMetadata) -> VersionKey:
    """The version of a block's file."""
    version = block.version
    return block.url, version.size_bytes, version.mtime_ns, version.etag


def _reason(error: DagflowError) -> str:
    place = f" at offset {error.offset}" if isinstance(error, RecordError) else ""
    return f"{type(error).__name__.removesuffix('Error').lower()}{place}: {error.message}"
