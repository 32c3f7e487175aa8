"""What becomes of a file that cannot be read: it fails the run, or is left out on record."""

from __future__ import annotations

import logging
from typing import Literal

from dagflow.api.context import UNKNOWN_SUM, OperatorContext, Skipped
from dagflow.errors import DagflowError, RecordError
from dagflow.metrics.names import LEFT_OUT_BYTES, SKIPPED, SKIPPED_BYTES
from dagflow.storage.location import redacted
from operators.files.metadata import BlockMetadata
from operators.reader.byte_accounting import accounting_key
from operators.reader.fingerprints import skipped_block_fingerprint

logger = logging.getLogger(__name__)

OnError = Literal["fail", "skip"]


class ErrorPolicy:
    """What an app says of files that cannot be read.

    Args:
        on_error: fail: the run ends; skip: the block is left out, which is journaled, counted and logged.
        context: Of the task.
    """

    def __init__(self, on_error: OnError, context: OperatorContext) -> None:
        self.skips = on_error == "skip"
        self._context = context

    def leave_out(self, block: BlockMetadata, error: DagflowError) -> None:
        """Leave out a block that cannot be read.

        Raises:
            DagflowError: The error, where such blocks fail the run.
        """
        if not self.skips:
            raise error
        context = self._context
        context.counters[SKIPPED] += 1
        context.counters[SKIPPED_BYTES] += block.size_bytes
        context.counters[LEFT_OUT_BYTES] += block.size_bytes
        if block.start or not block.is_last:
            # Records of the blocks around it may begin or end in it.
            context.accounting[accounting_key(block)] = UNKNOWN_SUM
        if (
            context.source_events is not None
            and (event := skipped_block_fingerprint(block, context.storage)) is not None
        ):
            context.source_events.append(event)
        context.skipped.append(Skipped(redacted(block.url), block.start, block.end, _reason(error)))
        logger.warning("block left out url=%s start=%d: %s", redacted(block.url), block.start, _reason(error))


def _reason(error: DagflowError) -> str:
    """Why, in the words of a report that names the file elsewhere."""
    place = f" at offset {error.offset}" if isinstance(error, RecordError) else ""
    return f"{type(error).__name__.removesuffix('Error').lower()}{place}: {error.message}"
