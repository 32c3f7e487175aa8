"""What S3's client does for each request and each listed object, at less expense than by default."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any

USER_AGENT = "dagflow"
"""Said once: the client's own is put together twice for each request, a tenth of the time that a request takes."""


def prepare_session(filesystem: Any) -> None:
    """Give a file system that has not connected yet a session whose answers' times are read quickly.

    A file system that has a session, its own or one of the app's options, keeps it.
    """
    if getattr(filesystem, "session", filesystem) is not None:
        return
    # Imported late: it is optional, and takes a quarter of a second.
    from aiobotocore.session import AioSession

    session = AioSession(**filesystem.kwargs)
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=parsed_time)
    filesystem.session = session


def parsed_time(value: Any) -> datetime:
    """The time that an answer tells.

    The forms that S3 uses, in listings and in headers, take a fiftieth and a tenth of the client's own parser, which
    guesses; it gets the rest.

    Raises:
        ValueError: It is no time.
    """
    if isinstance(value, str):
        try:
            found = datetime.fromisoformat(value) if value[10:11] == "T" else parsedate_to_datetime(value)
        except ValueError:
            found = None
        if found is not None and found.tzinfo is not None:
            return found
    # Imported late: it is optional.
    from botocore.utils import parse_timestamp

    other: datetime = parse_timestamp(value)
    return other
