"""The directory that a writer publishes into."""

from __future__ import annotations

import contextlib
import re

from dagflow.api.context import RunPreparation
from dagflow.errors import MissingError, StorageError
from dagflow.storage.files import list_directory
from dagflow.storage.location import name_of


def take_directory(run: RunPreparation, root: str, names: re.Pattern[str]) -> None:
    """Take a directory for one writer of this run.

    Args:
        run: What the run knows.
        root: The directory.
        names: What the names of the writer's files look like.

    Raises:
        StorageError: Another writer has it, or somebody else's file has such a name.
    """
    run.claim(root)
    with contextlib.suppress(MissingError):
        entries = list_directory(root)
        # A group of merged files is a directory, which may have any name.
        found = {entry.url for entry in entries if not entry.is_directory and names.fullmatch(name_of(entry.url))}
        if found:
            _refuse_strangers(run, root, found)


def _refuse_strangers(run: RunPreparation, root: str, foreign: set[str]) -> None:
    foreign.difference_update(run.published)
    # A journal that has forgotten its oldest windows cannot tell their files from strangers'. Where it publishes
    # already they are taken for its own; should one be in the way, publishing refuses to replace it.
    if foreign and not run.has_forgotten(root):
        raise StorageError(
            f"holds {len(foreign)} files that this checkpoint did not publish and whose names it may need, "
            f"such as {name_of(min(foreign))}",
            url=root,
            hint="publish into another directory, or remove them",
        )
