"""Pages about runs and checkpoints: a server that reads journals, and a report that is one file."""

import importlib.util
import ipaddress
from typing import Final

from dagflow.errors import DagflowError

UI_PORT: Final = 8090
"""Where pages are served if nothing else is asked for."""


def require_packages() -> None:
    """Refuse to begin where the packages of the server are not installed."""
    missing = [name for name in ("starlette", "uvicorn") if importlib.util.find_spec(name) is None]
    if missing:
        raise DagflowError(
            f"pages need the package {' and '.join(missing)}", hint="install it with: pip install 'dagflow[ui]'"
        )


def is_loopback(host: str) -> bool:
    """Whether only programs of this machine reach a host."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False
