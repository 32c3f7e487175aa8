"""Variables of the environment in an app: `${NAME}` and `${NAME:-default}`.

Their values may be secrets: messages always show the reference, never the value.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from dagflow.spec.problems import Place, Problems
from dagflow.suggestions import did_you_mean

_REFERENCE = re.compile(r"\$\$\{|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}|\$\{")
_WHOLE_REFERENCE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*(?::-[^{}\n]*)?)\}")
# Private characters, one for one, so that no place changes.
_BRACES = str.maketrans("\ue0f1\ue0f2", "{}")


def hide_braces(text: str) -> str:
    """Put other characters for the braces of references, which would end a value inside of `{...}` in YAML."""
    if "${" not in text or "\ue0f1" in text or "\ue0f2" in text:
        return text
    return _WHOLE_REFERENCE.sub("$\ue0f1\\1\ue0f2", text)


def show_braces(text: str) -> str:
    return text.translate(_BRACES)


@dataclass(slots=True)
class Environment:
    """Replaces variables, and remembers which values must not be shown.

    Attributes:
        secrets: The values that were put in, each with the reference that is shown instead.
    """

    variables: Mapping[str, str]
    secrets: dict[str, str] = field(default_factory=dict, repr=False)

    def expand(self, text: str, place: Place, problems: Problems) -> str | None:
        """Replace the variables in one value; `$${` stands for the characters `${`. None after a problem."""
        if "${" not in text:
            return text
        parts: list[str | None] = []
        position = 0
        for match in _REFERENCE.finditer(text):
            parts += [text[position : match.start()], self._value_of(match, place, problems)]
            position = match.end()
        parts.append(text[position:])
        known = [part for part in parts if part is not None]
        return "".join(known) if len(known) == len(parts) else None

    def _value_of(self, match: re.Match[str], place: Place, problems: Problems) -> str | None:
        name, default = match[1], match[2]
        if match[0] == "$${":
            return "${"
        if name is None:
            problems.add(place, "'${' begins a variable; write ${NAME} or ${NAME:-default}, or $${ for the characters")
            return None
        value = self.variables.get(name, "")
        if not value and default is not None:
            return default
        if name not in self.variables:
            hint = did_you_mean(name, self.variables.keys()) or "; set it, or write ${NAME:-default}"
            problems.add(place, f"the environment has no variable {name}{hint}")
            return None
        if not value.isprintable() and not _is_text(value):
            problems.add(place, f"the value of ${{{name}}} is not UTF-8 text")
            return None
        if value:
            self.secrets[value] = f"${{{name}}}"
        return value


def _is_text(value: str) -> bool:
    # Bytes of the operating system that are no UTF-8 come as lone surrogates, which nothing can encode again.
    return "\0" not in value and not any("\ud800" <= char <= "\udfff" for char in value)
