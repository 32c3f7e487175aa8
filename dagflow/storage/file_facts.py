"""Facts that a transaction needs about a file that it makes visible, so that the file is not opened again."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class FileFacts:
    """Facts of a data file; its length and its number of records are those of its PendingFile.

    Attributes:
        operator: The operator whose target shows the file, see TransactionalSink; "" where it is visible by its name.
        schema: The columns in the file, as text that the target understands.
        partition: The values of the table's partition columns by name, as text; None for a missing value.
        nulls: The number of missing values, by column.
        least: The smallest value, or one below it, as a JSON value, by column; only where it is known.
        greatest: The largest value, or one above it, by column.
        causes: The position of the first record that gave a column of the file its form, as `file:offset`, by column;
            only for columns that the table was not known to have, or to have in that type.
        keys: Columns by whose values rows of the file replace rows of the target; empty where rows are added.
        held: What a later window needs to take the file in, as a JSON value; None for a file that its own window
            publishes. See api/grouper.py.
        decided: The text of the target's decision about the columns of the window, in the first file of a window that
            changes them; see TargetDecision.
        proposal: What the target decides about before the window is committed; the journal does not keep it.
    """

    operator: str
    schema: str = ""
    partition: dict[str, str | None] = field(default_factory=dict)
    nulls: dict[str, int] = field(default_factory=dict)
    least: dict[str, Any] = field(default_factory=dict)
    greatest: dict[str, Any] = field(default_factory=dict)
    causes: dict[str, str] = field(default_factory=dict)
    keys: list[str] = field(default_factory=list)
    held: Any = None
    decided: str = ""
    proposal: Any = None

    @classmethod
    def from_json(cls, value: dict[str, Any] | None) -> FileFacts | None:
        """The facts from the JSON values that dataclasses.asdict has made."""
        return None if value is None else cls(**value)
