"""What happened to a file that was taken before, and what is to be done about it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from dagflow.storage.fingerprint import UNKNOWN
from operators.splitter.file_index import Seen
from operators.splitter.listing import Stat

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


def change_of(seen: Seen, now: Stat, fingerprint: Callable[[], int] = lambda: UNKNOWN) -> Change:
    """Name the difference between two versions of one path.

    An object store replaces whole objects, so there every change is a replacement.

    Args:
        seen: The version that was taken.
        now: Another version.
        fingerprint: Looks at as many of the file's bytes as the version that was taken had. Without it a
            rewrite in place that made the file longer looks like an append.
    """
    if now.etag or (seen.identity and now.file_id and seen.identity != now.file_id):
        return "replaced"
    if now.size_bytes == seen.size_bytes:
        return "replaced"
    if now.size_bytes < seen.size_bytes:
        return "truncated"
    is_other = seen.fingerprint != UNKNOWN and seen.fingerprint != fingerprint()
    return "replaced" if is_other else "appended"
