"""Where a server listens."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Address:
    """Where a server listens.

    Attributes:
        host: The name or number that it was asked for.
        port: The port.
        token: What requests must bring; "" on a loopback address.
    """

    host: str
    port: int
    token: str

    @property
    def url(self) -> str:
        """The address for a browser."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}/" + (f"?token={self.token}" if self.token else "")
