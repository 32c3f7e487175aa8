"""A record format with columns of one's own: lines of labels, such as `host:a`, with tabs between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from operators.reader.columns.typing import TextColumns
from operators.reader.formats.lines import Lines


class Ltsv(TextColumns, Lines):
    """Lines of labels with tabs between them; a label is a name, a colon and a value."""

    name: ClassVar[str] = "ltsv"

    def values(self, text: str) -> Mapping[str, str]:
        """The values by the names of their labels; a line with anything else in it is refused."""
        labels = [label.partition(":") for label in text.split("\t") if label]
        for name, colon, _ in labels:
            if not colon:
                raise ValueError(f"{name!r} is no label such as host:a")
        return {name: value for name, _, value in labels}
