"""Reads the pickles of a checkpoint, whose classes are an author's and may have been renamed."""

from __future__ import annotations

import io
import pickle
from typing import Any

from dagflow.errors import START_OVER, JournalError, text_of


class _Unpickler(pickle.Unpickler):
    """Keeps the name of a missing class.

    Attributes:
        missing: Its module, and its name in that; None where every class exists.
    """

    missing: tuple[str, str] | None = None

    def find_class(self, module: str, name: str) -> Any:
        try:
            return super().find_class(module, name)
        except Exception:  # importing an author's module may raise anything
            self.missing = (module, name)
            raise


def unpickled(data: bytes | memoryview, what: str, url: str = "journal") -> Any:
    """The object that was pickled; only for pickles whose signature was checked.

    Args:
        data: The pickle.
        what: What it is, as the beginning of a sentence.
        url: The object with the pickle, for the message.

    Raises:
        JournalError: A class is gone, or cannot be restored from its pickle.
    """
    reader = _Unpickler(io.BytesIO(data))
    try:
        return reader.load()
    except Exception as error:  # an author's class may raise anything here
        if reader.missing is not None:
            module, name = reader.missing
            raise JournalError(
                f"{what} needs {module}.{name}, which no longer exists: {text_of(error)}",
                url=url,
                hint=f"keep '{name}' in module '{module}' as another name of what the class is now, and import that "
                f"module in the operator's; or {START_OVER}",
            ) from error
        raise JournalError(
            f"{what} cannot be unpickled: {type(error).__name__}: {text_of(error)}",
            url=url,
            hint=f"run the version that wrote it, or {START_OVER}",
        ) from error
