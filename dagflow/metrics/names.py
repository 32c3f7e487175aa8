"""The names under which operators and the engine count: one closed vocabulary."""

from __future__ import annotations

# Files whose first block, or only one, was emitted: counted once for each version of a file, by splitters.
FILES = "files"
# Files whose last block was emitted, or that have none: counted once for each version of a file, by splitters.
FILES_COMPLETED = "files_completed"
# Blocks that splitters emitted.
BLOCKS_EMITTED = "blocks_emitted"
# Bytes of input in the blocks that splitters emitted.
BYTES_EMITTED = "bytes_emitted"
# Blocks that have been read.
BLOCKS = "blocks"
# Bytes of input in the blocks that have been read.
BYTES = "bytes"
# Records, or stretches of bytes that should be records, that a format or a parser refused.
REJECTED = "rejected"
# Bytes in refused records.
REJECTED_BYTES = "rejected_bytes"
# Bytes passed over with a reason, such as a header, a byte order mark, or a record that is too long.
SKIPPED_BYTES = "skipped_bytes"
# NULs at the heads of logs that were truncated while their writers did not append; they are among skipped_bytes.
HOLE_BYTES = "hole_bytes"
# Bytes that must be accounted for as records, delimiters, rejects or skips: for a compressed file, its content.
CONTENT_BYTES = "content_bytes"
# Bytes of input in the records that were read, as they are in their files.
RECORD_BYTES = "record_bytes"
# Bytes of input between the records: those that end a record, or give its length.
DELIMITER_BYTES = "delimiter_bytes"
# Blocks that were left out because their file could not be read.
SKIPPED = "skipped"
# Blocks that were left out because the planned version of their file was gone.
VANISHED = "vanished"
# Bytes of the blocks that were left out; they are among skipped_bytes, and not among bytes.
LEFT_OUT_BYTES = "left_out_bytes"
# Bytes of records that were in progress at the end of a file that may grow, and that wait for their end.
WAITING_BYTES = "waiting_bytes"
# Bytes of records in progress that were read again with their end; waiting_bytes less these still wait.
RESUMED_BYTES = "resumed_bytes"
# Rows that were not read because statistics of their file show that the next operator would drop them.
SKIPPED_ROWS = "skipped_rows"
# Input files that were removed or archived after their records had been published.
CLEANED = "cleaned"
# Input files that should have been removed or archived, but stayed, or were gone or renamed by then.
CLEANED_NOT = "not_cleaned"
# Files that were replaced or truncated after they had been read, and are read as new: the app does not say what to do.
REREAD = "files_reread"
# Files that were replaced or truncated after they had been read, and whose new records take the place of the old ones.
SUPERSEDED = "files_superseded"
# Records of earlier versions of files that were taken out of an output.
SUPERSEDED_RECORDS = "superseded_records"
# Records of later versions that took their place.
SUPERSEDING_RECORDS = "superseding_records"
# Totals that a correction has replaced or removed, and those that it has removed.
REPLACED_TOTALS = "totals_replaced"
REMOVED_TOTALS = "totals_removed"
# Files and directories that scans passed over because of their names, counted in each scan.
IGNORED = "ignored"
# Files that scans left for later, as they were not complete, or not known to be new or moved; counted in each scan.
FILES_DEFERRED = "files_deferred"
# Records whose key a lookup table does not have, and that are kept without its columns, or dropped.
UNMATCHED = "unmatched"
# Records that were dropped because their key was there before.
DUPLICATES = "duplicates"
# Keys that are no longer remembered: after their time, or because there were too many.
FORGOTTEN_KEYS = "forgotten_keys"
# Values that had no place in a column of their table, and are in its column _rescued.
RESCUED_VALUES = "rescued_values"
# With the name of a column: its values in windows in which every value of the column was rescued.
ALL_RESCUED = "all_rescued."
# Values of columns that their table lacks, and that the app says to leave out.
IGNORED_VALUES = "ignored_values"
# Scans that a store broke off and that are made again.
FAILED_SCANS = "failed_scans"
BYTE_ACCOUNTING = frozenset((CONTENT_BYTES, RECORD_BYTES, DELIMITER_BYTES, SKIPPED_BYTES, REJECTED_BYTES))
"""Counts that add up when all is well: the summary of a run leaves them out, --json all shows them."""


def changed(change: str) -> str:
    """The name of the count of files that were found changed in that way after they had been taken."""
    return f"files_{change}"


TOTALS = frozenset((FILES, FILES_COMPLETED, BLOCKS_EMITTED, BYTES_EMITTED, BLOCKS, BYTES, REJECTED))
"""Counts that a run shows as figures of its own; all others are shown by operator."""
