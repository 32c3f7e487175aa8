"""Sends an alert to a webhook or a command."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from dagflow.errors import cut_text
from dagflow.report.alert_rules import Cause
from dagflow.spec.signal_settings import AlertSettings
from dagflow.telemetry.http_post import post

COMMAND_TIMEOUT_S: Final = 20.0
"""Seconds after which a command is killed."""

_MOST_CHARACTERS = 200


@dataclass(frozen=True, slots=True)
class AlertNotice:
    """One message about an alert.

    Attributes:
        app: The app.
        checkpoint: Its checkpoint, without credentials.
        cause: The limit that is, or was, exceeded.
        is_over: Whether the alert is over.
        text: A sentence without its end.
        value: The measured value; see Finding.
        limit: What is allowed.
        time_ms: When the message was made, in milliseconds since 1970.
    """

    app: str
    checkpoint: str
    cause: Cause
    is_over: bool
    text: str
    value: float
    limit: float
    time_ms: int

    @property
    def state(self) -> str:
        """The state of the alert: "raised" or "over"."""
        return "over" if self.is_over else "raised"

    def to_json(self) -> dict[str, Any]:
        """The body that a webhook gets; chats show its `text`."""
        return {
            "text": f"{self.app}: {self.text}",
            "app": self.app,
            "checkpoint": self.checkpoint,
            "cause": self.cause,
            "state": self.state,
            "value": self.value,
            "limit": self.limit,
            "time": datetime.fromtimestamp(self.time_ms / 1000, UTC).isoformat(timespec="milliseconds"),
        }

    def to_environment(self) -> dict[str, str]:
        """The variables that a command gets."""
        values = {**self.to_json(), "text": self.text}
        # A variable holds no NUL character; file names and messages may hold bytes that are no text.
        shown = {name: str(value).replace("\0", "\ufffd") for name, value in values.items()}
        return {f"DAGFLOW_{name.upper()}": value for name, value in shown.items()}


Deliver = Callable[[AlertNotice], str]
"""Sends an alert; returns "" or why that failed."""


def delivery_of(settings: AlertSettings) -> Deliver | None:
    """How alerts are sent; None where the app names no receiver."""
    if (webhook := settings.webhook) is not None:
        return lambda notice: _named(f"the webhook at {webhook}", post(webhook, json.dumps(notice.to_json()).encode()))
    if settings.command:
        return lambda notice: _named(settings.command[0], _run(settings.command, notice))
    return None


def _named(receiver: str, refused: str) -> str:
    return f"{receiver}: {refused}" if refused else ""


def _run(command: tuple[str, ...], notice: AlertNotice) -> str:
    environment = {**os.environ, **notice.to_environment()}
    try:
        done = subprocess.run(
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            timeout=COMMAND_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"it was killed after {COMMAND_TIMEOUT_S:.0f} s"
    except (OSError, ValueError) as error:
        return getattr(error, "strerror", None) or str(error)
    said = cut_text(done.stderr.decode(errors="replace").strip(), _MOST_CHARACTERS)
    return f"it ended with {done.returncode}{f': {said}' if said else ''}" if done.returncode else ""
