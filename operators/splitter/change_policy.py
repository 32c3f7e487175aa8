"""What happened to a file that was taken before, and what the app does about it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagflow.storage.fingerprint import UNKNOWN
from operators.splitter.index.entries import IndexEntry
from operators.splitter.scan.listed_stats import ListedStat

Change = Literal["appended", "replaced", "truncated"]
Action = Literal["tail", "reread", "ignore", "fail"]


class OnChange(BaseModel):
    """The policy for files that changed after they were taken.

    Each change is logged and counted, whatever the policy.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    appended: Annotated[
        Literal["tail", "reread", "ignore", "fail"],
        Field(description="the same file got longer: read what was added, or all of it again"),
    ] = "tail"
    replaced: Annotated[
        Literal["reread", "ignore", "fail"], Field(description="another content under the same name: read it as new")
    ] = "reread"
    truncated: Annotated[
        Literal["reread", "ignore", "fail"], Field(description="the same file got shorter: read it as new")
    ] = "reread"

    def action(self, change: Change) -> Action:
        """What to do about a change."""
        return {"appended": self.appended, "replaced": self.replaced, "truncated": self.truncated}[change]

    @property
    def needs_fingerprints(self) -> bool:
        """Whether an append must be distinguished from a rewrite in place."""
        return self.appended != self.replaced


def looks_appended(taken: IndexEntry, now: ListedStat) -> bool:
    """Whether a change looks like an append, by names, sizes and times alone."""
    # An object store replaces whole objects.
    is_other_file = now.etag or (taken.identity and now.file_id and taken.identity != now.file_id)
    return not is_other_file and now.size_bytes > taken.size_bytes


def change_of(taken: IndexEntry, now: ListedStat, fingerprint: int = UNKNOWN) -> Change:
    """Name the difference between two versions of one path.

    Args:
        taken: The version that was taken.
        now: Another version.
        fingerprint: Of as many of the file's bytes now as the taken version had; UNKNOWN where it no longer has them.
            Without a fingerprint of the taken version, a longer rewrite in place counts as an append.
    """
    if looks_appended(taken, now):
        is_rewritten = taken.fingerprint > UNKNOWN and taken.fingerprint != fingerprint
        return "replaced" if is_rewritten else "appended"
    is_same_file = not now.etag and not (taken.identity and now.file_id and taken.identity != now.file_id)
    return "truncated" if is_same_file and now.size_bytes < taken.size_bytes else "replaced"
