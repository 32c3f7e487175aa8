"""What happened to a file that was taken before, and what is to be done about it."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagflow.storage.fingerprint import UNKNOWN
from operators.splitter.index.file_index import Seen
from operators.splitter.scan.listing import Stat

Change = Literal["appended", "replaced", "truncated"]
Action = Literal["tail", "reread", "ignore", "fail"]


class OnChange(BaseModel):
    """The policy for files that changed after they were taken.

    No choice is silent: each change is logged and counted.
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
    def tells_appends(self) -> bool:
        """Whether it matters that a file was appended to, and not rewritten in place."""
        return self.appended != self.replaced


def seems_appended(seen: Seen, now: Stat) -> bool:
    """Whether a change looks like an append, as far as names, sizes and times tell."""
    # An object store replaces whole objects.
    is_other = now.etag or (seen.identity and now.file_id and seen.identity != now.file_id)
    return not is_other and now.size_bytes > seen.size_bytes


def change_of(seen: Seen, now: Stat, fingerprint: int = UNKNOWN) -> Change:
    """Name the difference between two versions of one path.

    Args:
        seen: The version that was taken.
        now: Another version.
        fingerprint: Of as many of the file's bytes now as the version that was taken had; UNKNOWN where it no longer
            has them. A version that was taken without one cannot be told from what a rewrite in place made longer.
    """
    if seems_appended(seen, now):
        is_other = seen.fingerprint > UNKNOWN and seen.fingerprint != fingerprint
        return "replaced" if is_other else "appended"
    is_same = not now.etag and not (seen.identity and now.file_id and seen.identity != now.file_id)
    return "truncated" if is_same and now.size_bytes < seen.size_bytes else "replaced"
