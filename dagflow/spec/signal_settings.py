"""Where a run sends signals, and when it raises an alert: the attributes `alerts`, `lineage` and `traces`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class HttpTarget:
    """An address that takes events over HTTP.

    Attributes:
        url: The whole URL; it may be a secret, as that of a webhook often is.
    """

    url: str = field(repr=False)
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)

    def __str__(self) -> str:
        parts = urlsplit(self.url)
        return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@dataclass(frozen=True, slots=True)
class LineageSettings:
    target: HttpTarget
    namespace: str = "dagflow"


@dataclass(frozen=True, slots=True)
class AlertSettings:
    """When a run raises an alert, and where it is sent.

    Attributes:
        freshness_millis: How long input may wait to be published; None for no limit.
        rejects: Which share of the newest records may be refused, from 0 to 1; None for no limit.
    """

    freshness_millis: int | None = None
    rejects: float | None = None
    backlog_bytes: int | None = None
    webhook: HttpTarget | None = None
    command: tuple[str, ...] = field(default=(), repr=False)
