"""Formats, kinds of tables, stores and operators that installed packages bring, by their entry points.

A package declares what it has in the groups `dagflow.formats`, `dagflow.sink_formats`, `dagflow.targets`,
`dagflow.stores` and `dagflow.operators`; see the entry points of Python's packages.
"""

from __future__ import annotations

import importlib
import logging
from dataclasses import dataclass
from functools import cache, cached_property

from dagflow.errors import text_of

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Plugin:
    """One entry point.

    Attributes:
        name: What an app calls it.
        path: The dotted path of its class.
        package: The package that brings it.
    """

    name: str
    path: str
    package: str

    @cached_property
    def loaded(self) -> object | None:
        """The class; None, with one line in the log, where it cannot be imported."""
        module, _, name = self.path.rpartition(".")
        try:
            found: object = getattr(importlib.import_module(module), name)
        # A module may do anything while it is imported, sys.exit included.
        except (Exception, SystemExit) as error:
            why = f"{type(error).__name__}: {text_of(error)}"
            logger.warning("'%s' of the package %s cannot be imported: %s", self.name, self.package, why)
            return None
        return found


@cache
def plugins(group: str) -> dict[str, Plugin]:
    """What installed packages bring in a group, such as "formats", by name; the first package of two by its name.

    Reading the metadata of all packages takes some hundredths of a second: ask only for names that are not built in.
    """
    # Heavy: only a name that is not built in pays for it.
    from importlib.metadata import entry_points

    points = entry_points(group=f"dagflow.{group}")
    own = [Plugin(p.name, p.value.replace(":", "."), p.dist.name if p.dist is not None else "") for p in points]
    return {plugin.name: plugin for plugin in sorted(own, key=lambda plugin: plugin.package, reverse=True)}


def plugin_path(group: str, name: str) -> str | None:
    """The dotted path of the class that an installed package has under a name."""
    plugin = plugins(group).get(name)
    return plugin.path if plugin is not None else None
