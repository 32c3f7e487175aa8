"""A client of yaml-language-server, which completes and checks YAML in VS Code, Neovim and other editors."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PROGRAM = "yaml-language-server"
_WAIT_S = 60
_CAPABILITIES = {
    "workspace": {"configuration": True},
    "textDocument": {
        "completion": {"completionItem": {"documentationFormat": ["markdown"], "snippetSupport": True}},
        "hover": {"contentFormat": ["markdown"]},
    },
}
_SETTINGS = {"validate": True, "completion": True, "hover": True, "schemaStore": {"enable": False}}


class LanguageServer:
    """Speaks the language server protocol with one process over its standard input and output.

    Args:
        process: The server.
        folder: Where the files lie that are opened, beside the schema that they name.
    """

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self._process = process
        self._folder = folder
        self._count = 0
        self._notifications: list[dict[str, Any]] = []
        self._ask("initialize", {"processId": os.getpid(), "rootUri": None, "capabilities": _CAPABILITIES})
        self._send({"method": "initialized", "params": {}})

    def complaints(self, text: str) -> list[tuple[int, str]]:
        """What the server has against a text: line, counted from 1, and message."""
        return self._opened(text)[1]

    def completions(self, text: str) -> dict[str, str]:
        """What the server offers where `|` stands in a text, each with its description."""
        found = self._at_cursor("completion", text)
        return {item["label"]: _text(item.get("documentation")) for item in found["items"]}

    def hover(self, text: str) -> str:
        """What the server shows for the word in which `|` stands in a text."""
        return _text(self._at_cursor("hover", text)["contents"])

    def _at_cursor(self, request: str, text: str) -> Any:
        before, after = text.split("|")
        uri, _ = self._opened(before + after)
        position = {"line": before.count("\n"), "character": len(before) - before.rfind("\n") - 1}
        return self._ask(f"textDocument/{request}", {"textDocument": {"uri": uri}, "position": position})

    def _opened(self, text: str) -> tuple[str, list[tuple[int, str]]]:
        uri = (self._folder / f"opened-{self._count}.yaml").as_uri()
        document = {"uri": uri, "languageId": "yaml", "version": 1, "text": text}
        self._send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
        while True:
            for message in self._notifications:
                if message["method"] == "textDocument/publishDiagnostics" and message["params"]["uri"] == uri:
                    self._count += 1
                    found = message["params"]["diagnostics"]
                    return uri, [(each["range"]["start"]["line"] + 1, each["message"]) for each in found]
            self._take(self._receive())

    def _ask(self, method: str, params: object) -> Any:
        self._count += 1
        number = self._count
        self._send({"id": number, "method": method, "params": params})
        while True:
            message = self._receive()
            if message.get("id") == number and "method" not in message:
                return message["result"]
            self._take(message)

    def _take(self, message: dict[str, Any]) -> None:
        """Answer the server's requests, and keep its notifications."""
        if "id" not in message:
            self._notifications.append(message)
            return
        is_settings = message["method"] == "workspace/configuration"
        items = message["params"]["items"] if is_settings else []
        settings = [_SETTINGS if item["section"] == "yaml" else {} for item in items]
        self._send({"id": message["id"], "result": settings if is_settings else None})

    def _send(self, message: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        data = json.dumps({"jsonrpc": "2.0", **message}).encode()
        self._process.stdin.write(b"Content-Length: %d\r\n\r\n" % len(data) + data)
        self._process.stdin.flush()

    def _receive(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        length = 0
        while line := self._process.stdout.readline().strip():
            key, _, value = line.partition(b":")
            length = int(value) if key.lower() == b"content-length" else length
        assert length, f"{PROGRAM} ended with {self._process.wait(_WAIT_S)}"
        message: dict[str, Any] = json.loads(self._process.stdout.read(length))
        return message


@contextlib.contextmanager
def language_server(folder: Path) -> Iterator[LanguageServer]:
    """Run a server for files in a directory; the test is skipped where there is none."""
    program = shutil.which(PROGRAM)
    if program is None:
        pytest.skip(f"there is no {PROGRAM}; npm install -g {PROGRAM}, with node, brings it")
    process = subprocess.Popen([program, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        with process:
            yield LanguageServer(process, folder)
            process.kill()
    finally:
        process.kill()


def _text(documentation: Any) -> str:
    return str(documentation["value"] if isinstance(documentation, dict) else documentation or "")
