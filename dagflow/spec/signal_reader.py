"""Reads the attributes `alerts`, `lineage` and `traces`."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from dagflow.api.properties import parse_size
from dagflow.secret_names import HIDDEN, SHORTEST_SECRET, is_secret_option
from dagflow.spec.app_spec import AlertSettings, HttpTarget, LineageSettings
from dagflow.spec.yaml_tree import Items, Mapping, Node, NodeReader, Scalar

TARGET_KEYS: Final = ("url", "headers")
LINEAGE_KEYS: Final = (*TARGET_KEYS, "namespace")
ALERT_KEYS: Final = ("freshness_millis", "rejects", "backlog", "on", *TARGET_KEYS, "command")
MAX_FRESHNESS_MILLIS: Final = 366 * 24 * 60 * 60 * 1000
WAYS: Final = ("webhook", "command")

_PERCENT = re.compile(r"(\d+(?:\.\d+)?)\s*%")


@dataclass(frozen=True, slots=True)
class SignalReader(NodeReader):
    """Reads where signals go; credentials among the values are not shown from here on."""

    def traces(self, attributes: Mapping) -> HttpTarget | None:
        section = self._given(attributes, "traces")
        if section is None:
            return None
        self.check_keys(section, TARGET_KEYS, "'traces'")
        return self._target(section, "traces")

    def lineage(self, attributes: Mapping) -> LineageSettings | None:
        section = self._given(attributes, "lineage")
        if section is None:
            return None
        self.check_keys(section, LINEAGE_KEYS, "'lineage'")
        namespace = self.text(section.get("namespace"), "'namespace' of 'lineage'") or "dagflow"
        target = self._target(section, "lineage")
        return None if target is None else LineageSettings(target, namespace)

    def alerts(self, attributes: Mapping) -> AlertSettings | None:
        section = self._given(attributes, "alerts")
        if section is None:
            return None
        self.check_keys(section, ALERT_KEYS, "'alerts'")
        way = self._way(section)
        freshness = section.get("freshness_millis")
        what = "'freshness_millis' of 'alerts'"
        return AlertSettings(
            freshness_millis=None if freshness is None else self.whole(freshness, what, MAX_FRESHNESS_MILLIS),
            rejects=self._share(section.get("rejects")),
            backlog_bytes=self._size(section.get("backlog")),
            webhook=self._target(section, "alerts") if way == "webhook" else None,
            command=self._command(section) if way == "command" else (),
        )

    def _given(self, attributes: Mapping, key: str) -> Mapping | None:
        return None if attributes.get(key) is None else self.section(attributes, key, required=True)

    def _way(self, section: Mapping) -> str:
        node = section.get("on")
        if node is None:
            # `dagflow check` needs the limits alone.
            for key in (*TARGET_KEYS, "command"):
                if key in section.entries:
                    place = section.entries[key].key_place
                    self.problems.add(place, f"'{key}' of 'alerts' needs 'on: {WAYS[key == 'command']}'")
            return ""
        way = self.text(node, "'on' of 'alerts'", "webhook or command")
        if way is not None and way not in WAYS:
            self.expected("'on' of 'alerts'", "webhook or command", node, WAYS)
            return ""
        unused = [key for key in (("command",) if way == "webhook" else TARGET_KEYS) if key in section.entries]
        for key in unused if way else ():
            self.problems.add(section.entries[key].key_place, f"'{key}' of 'alerts' does not go with 'on: {way}'")
        return way or ""

    def _target(self, section: Mapping, what: str) -> HttpTarget | None:
        node = section.get("url")
        if node is None:
            self.problems.add(section.place, f"'url' of '{what}' is missing")
            return None
        url = self.text(node, f"'url' of '{what}'", "a URL")
        if url is None:
            return None
        # Anyone who knows the address of a webhook can call it.
        self._hide(url)
        if not is_http_url(url):
            message = f"'url' of '{what}': expected a URL that begins with http:// or https:// and names a host"
            self.problems.add(node.place, message)
            return None
        return HttpTarget(url, self._headers(section, what))

    def _headers(self, section: Mapping, what: str) -> dict[str, str]:
        headers: dict[str, str] = {}
        for name, entry in self.section(section, "headers").entries.items():
            if isinstance(entry.value, Scalar) and entry.value.is_broken:
                continue  # what is wrong with it has been reported already
            text = entry.value.text if isinstance(entry.value, Scalar) else None
            if text is not None and is_secret_option(name):
                # The part behind a scheme such as Bearer, which is in many texts.
                self._hide(text.rpartition(" ")[2])
            if not re.fullmatch(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", name):
                self.problems.add(entry.key_place, f"'headers' of '{what}': this is no name of a header")
            elif text is None or not text.isascii() or not text.isprintable():
                self.problems.add(entry.value.place, f"header '{name}' of '{what}': expected one line of ASCII text")
            else:
                headers[name] = text
        return headers

    def _hide(self, value: str) -> None:
        if len(value) >= SHORTEST_SECRET:
            self.environment.secrets.setdefault(value, HIDDEN)

    def _share(self, node: Node | None) -> float | None:
        if node is None:
            return None
        if isinstance(node, Scalar) and (share := share_of(node.text)) is not None:
            return share
        self.expected("'rejects' of 'alerts'", "a share from 0% to 100%, such as 1%", node)
        return None

    def _size(self, node: Node | None) -> int | None:
        if node is None:
            return None
        try:
            if isinstance(node, Scalar) and (size := parse_size(node.value)) > 0:
                return size
        except ValueError:
            pass
        self.expected("'backlog' of 'alerts'", "a size such as 10GiB", node)
        return None

    def _command(self, section: Mapping) -> tuple[str, ...]:
        node = section.get("command")
        if node is None:
            self.problems.add(section.place, "'command' of 'alerts' is missing")
            return ()
        items = node.items if isinstance(node, Items) else (node,)
        words = [
            self.text(item, "'command' of 'alerts'", "a program, or a list of it and its arguments") for item in items
        ]
        if not words:
            self.expected("'command' of 'alerts'", "a program, or a list of it and its arguments", node)
        return tuple(word for word in words if word is not None)


def share_of(text: str) -> float | None:
    """The share that a text such as 1% means, from 0 to 1; None for any other text."""
    match = _PERCENT.fullmatch(text)
    return float(match[1]) / 100 if match is not None and float(match[1]) <= 100 else None


def is_http_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        is_known = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False
    return is_known and url.isascii() and url.isprintable() and " " not in url
